"""A run whose rounds are far larger than one message is shown, watched, reported and fetched all the same."""

from __future__ import annotations

import json

from foedus.modelfile import ModelFile, write_model
from foedus.protos.channel import MAX_MESSAGE_BYTES
from foedus.protos.messages import Phase
from foedus.protos.v1 import operations_pb2
from foedus.server.history import RunState
from foedus.server.operator import fetch, show
from foedus.server.report import render
from foedus.server.run_cli import details
from loopback import loopback, plan, toy_model

REASON = "the data of this month are not complete yet, come again " * 4


def record(fed, run, sha256, rounds, sites):
    """Rounds with both phases and their participations, straight into the tables."""
    with fed.runs.store.transaction("a test") as db:
        db.executemany(
            "INSERT INTO rounds VALUES "
            "(?, ?, 'evaluated', '', 1, 1, 1, '[]', ?, NULL, 1.0, 2.0, ?, NULL, '{}', '{}', NULL, NULL)",
            [(run, number, sha256, sha256 if number < rounds else None) for number in range(1, rounds + 1)],
        )
        metrics = json.dumps({"loss": 0.5, "accuracy": 0.25})
        db.executemany(
            "INSERT INTO participations VALUES (?, ?, ?, ?, 'refused', 'SiteVeto', ?, 7, 0, NULL, ?, NULL, NULL)",
            [
                (run, number, phase, f"site-{site}", REASON, metrics)
                for number in range(1, rounds + 1)
                for phase in (Phase.TRAIN, Phase.EVALUATE)
                for site in range(sites)
            ],
        )


async def made(local, rounds, sites):
    fed, path = local.fed, local.folder / "initial.safetensors"
    write_model(path, toy_model())
    sha256 = ModelFile.open(path).digest()
    path.rename(fed.blobs.folder / sha256)
    run = fed.runs.create(plan(), sha256)
    fed.runs.move(run.id, RunState.STOPPED, allowed=(RunState.QUEUED,))
    record(fed, run.id, sha256, rounds, sites)
    return run.id, sha256


async def test_many_rounds_of_many_sites(tmp_path):
    async with loopback(tmp_path) as local:
        run, sha256 = await made(local, rounds=400, sites=20)
        stub = local.operator()
        shown = await show(stub, run[:6])
        assert shown.ByteSize() > MAX_MESSAGE_BYTES
        assert [round.number for round in shown.rounds] == list(range(1, 401))
        assert {len(round.participations) for round in shown.rounds} == {40}
        assert (shown.round, shown.last_sha256) == (399, sha256)  # the newest that has a model
        assert "site-19" in render(details(shown))
        (event,) = [event async for event in stub.WatchRun(operations_pb2.RunRequest(run=run))]
        assert (event.run.state, event.run.round) == ("stopped", 399)
        assert await fetch(stub, run, "last", tmp_path / "out") == sha256


async def test_many_runs(tmp_path):
    async with loopback(tmp_path) as local:
        await local.submit()
        with local.fed.runs.store.transaction("a test") as db:
            db.executemany(
                "INSERT INTO runs SELECT ? || id, name, 'stopped', reason, plan_json, created, initial_sha256, "
                "NULL, NULL FROM runs WHERE state <> 'stopped'",
                [(f"{number:04}",) for number in range(1500)],
            )
        reply = await local.operator().ListRuns(operations_pb2.ListRunsRequest())
        assert len(reply.runs) == 1501
        assert {run.name for run in reply.runs} == {"toy"}


async def test_one_round_of_more_sites_than_fit_into_a_message(tmp_path):
    async with loopback(tmp_path) as local:
        run, _ = await made(local, rounds=2, sites=8000)
        shown = await show(local.operator(), run)
        assert [round.number for round in shown.rounds] == [1, 2]
        for round in shown.rounds:
            assert round.ByteSize() > MAX_MESSAGE_BYTES
            seen = {(part.site, part.phase) for part in round.participations}
            assert len(round.participations) == len(seen) == 16_000
            assert (round.state, round.started_unix_seconds) == ("evaluated", 1.0)
