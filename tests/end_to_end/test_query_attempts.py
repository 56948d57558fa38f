"""Queries that do not go through at once: sites that come late, leave, are suspended; several queries together."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from foedus.client_sdk.sum_store import SumStore
from foedus.errors import DiskFull
from foedus.privacy.analytics.answer import Answers
from foedus.privacy.secagg.collect import Phase as SumPhase
from foedus.privacy.secagg.state import Stage
from foedus.protos.messages import Phase, Work
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask_query, show_query
from foedus.server.query_records import QueryRecords
from foedus.server.sum_records import SumRecords
from query_federation import POLICY, ages_of, asked, query_trial
from real_sites import serving

MEAN = {"kind": "mean", "column": "age", "low": 0, "high": 120}
COUNT = {"kind": "count", "column": "age"}


def mean_of(*places):
    return pytest.approx(np.concatenate([ages_of(place) for place in places]).mean())


def value(shown):
    assert shown.state == "answered", (shown.reason, shown.sites)
    return Answers.from_json(shown.answer_json).answers[0].estimates[0].value


async def happened(trial, name):
    """Wait for an event; the watch has begun when the task that waits has run for the first time."""
    async for happening in trial.local.fed.feed.watch():
        if happening.name == name:
            return happening.detail
    raise AssertionError(f"the server ended without {name}")


async def test_an_attempt_that_failed_is_made_once_more(tmp_path):
    async with query_trial(tmp_path, 6) as trial, serving(trial.local, *trial.homes):
        late = [home.path / "hold" for home in trial.homes[4:]]
        for hold in late:
            hold.touch()
        again = asyncio.create_task(happened(trial, "query_tried_again"))
        await asyncio.sleep(0)
        id = await trial.submit(asked(MEAN, deadline_seconds=2.0))
        assert "4 sites have sent keys" in await again
        for hold in late:
            hold.unlink()
        shown = await trial.ended(id)
        assert value(shown) == mean_of(*range(6))
        assert trial.local.fed.queries.find(id).attempt == 2
        assert {site.verdict for site in shown.sites} == {"accepted"}


async def test_two_attempts_are_enough(tmp_path):
    async with query_trial(tmp_path, 6) as trial, serving(trial.local, *trial.homes):
        for home in trial.homes[4:]:
            (home.path / "hold").touch()
        shown = await trial.ask(asked(MEAN, deadline_seconds=0.5))
        for home in trial.homes[4:]:
            (home.path / "hold").unlink()
        assert (shown.state, shown.reason) == ("failed", "4 sites have sent keys, expected at least 5")
        assert trial.local.fed.queries.find(shown.id).attempt == 2


async def test_a_suspended_site_is_not_waited_for(tmp_path):
    async with query_trial(tmp_path, 6) as trial, serving(trial.local, *trial.homes):
        (trial.homes[5].path / "hold").touch()
        id = await trial.submit(asked(MEAN, deadline_seconds=3600.0))
        while not trial.local.fed.queries.unanswered("site-5"):
            await asyncio.sleep(0)
        request = operations_pb2.ChangeSiteRequest(name="site-5", action="suspend")
        await trial.local.operator().ChangeSite(request)
        shown = await trial.ended(id)
        (trial.homes[5].path / "hold").unlink()
    assert value(shown) == mean_of(*range(5))
    assert [(site.verdict, site.code) for site in shown.sites if site.site == "site-5"] == [("rejected", "NotApproved")]


async def test_several_queries_at_once(tmp_path):
    async with query_trial(tmp_path, 5) as trial, serving(trial.local, *trial.homes):
        stub = trial.local.operator()
        found = await asyncio.gather(*(ask_query(stub, asked(MEAN, name=f"q{number}")) for number in range(4)))
    assert [answers.answers[0].estimates[0].value for answers in found] == [mean_of(*range(5))] * 4


async def test_a_server_that_stops_in_between_goes_on(tmp_path):
    async with query_trial(tmp_path, 5) as trial, serving(trial.local, *trial.homes):
        (trial.homes[0].path / "hold").touch()
        id = await trial.submit(asked(MEAN))
        while not trial.local.fed.queries.asked(id):
            await asyncio.sleep(0)
    (trial.homes[0].path / "hold").unlink()
    async with query_trial(tmp_path, 0, signed=False) as again:
        for home in trial.homes:
            text = home.config.read_text()
            home.config.write_text(text.replace(trial.local.address, again.local.address))
        async with serving(again.local, *trial.homes):
            assert value(await again.ended(id)) == mean_of(*range(5))
            assert again.local.fed.queries.find(id).attempt == 1


async def test_an_answer_leaves_no_secret_at_the_sites_and_no_words_at_the_server(tmp_path):
    async with query_trial(tmp_path, 5) as trial:
        async with serving(trial.local, *trial.homes):
            shown = await trial.ask(asked(MEAN))
            # What was released has been forgotten once the next query is answered.
            await trial.ask(asked(COUNT))
        for home in trial.homes:
            store = SumStore.open(home.sums)
            state = store.find(shown.id, 1)
            assert (state.stage, state.held, state.answers, state.masked) == (Stage.REVEALED, (), (), None)
            assert not any(secret for secret in (state.seed, state.rounding, state.seal_key, state.mask_key))
            assert store.answered() == [frozenset(state.descriptor.participants)]
            store.close()
        assert trial.local.fed.queries.store.query("SELECT * FROM secure_messages") == []


async def test_what_is_recorded_of_a_site_is_masked(tmp_path, monkeypatch):
    """Whoever reads the server's disk while a query is under way sees words that are no counters."""
    monkeypatch.setattr(SumRecords, "forget", lambda *_: None)
    async with query_trial(tmp_path, 5) as trial, serving(trial.local, *trial.homes):
        assert value(await trial.ask(asked(COUNT))) == sum(len(ages_of(place)) for place in range(5))
        rows = trial.local.fed.queries.store.query("SELECT words FROM secure_messages WHERE words NOT NULL")
    assert len(rows) == 5
    assert min(int.from_bytes(row["words"], "little") for row in rows) > 1 << 40  # but for a chance of 2^-21


async def test_a_server_without_space_fails_the_query_and_answers_the_next(tmp_path, monkeypatch):
    real = SumRecords.append

    def append(self, work, attempt, message, words=None):
        if message is None:  # the end of a phase
            raise DiskFull("no space left")
        real(self, work, attempt, message, words)

    async with query_trial(tmp_path, 5) as trial, serving(trial.local, *trial.homes):
        monkeypatch.setattr(SumRecords, "append", append)
        shown = await trial.ask(asked(COUNT))
        assert (shown.state, shown.reason) == ("failed", "no space left")
        monkeypatch.undo()
        assert value(await trial.ask(asked(COUNT))) == sum(len(ages_of(place)) for place in range(5))


async def test_a_query_that_cannot_even_be_failed_is_waited_for_and_goes_on_after_a_restart(tmp_path, monkeypatch):
    def no_space(*_, **__):
        raise DiskFull("no space left")

    async with query_trial(tmp_path, 5) as trial, serving(trial.local, *trial.homes):
        for name in ("answer", "fail"):
            monkeypatch.setattr(QueryRecords, name, no_space)
        id = await trial.submit(asked(COUNT))
        shown = await show_query(trial.local.operator(), id, 0.5)
        while trial.local.fed.sums.find(Work(id, 1, Phase.QUERY)).state.phase is not SumPhase.UNMASK:
            shown = await show_query(trial.local.operator(), id, 0.5)
        assert shown.state == "running"
        monkeypatch.undo()
    async with query_trial(tmp_path, 0, signed=False) as again:
        assert value(await again.ended(id)) == sum(len(ages_of(place)) for place in range(5))


async def test_the_largest_query_fits_a_message(tmp_path):
    tree = {"kind": "quantile", "column": "age", "low": 0, "high": 128, "height": 16, "at": [0.5]}
    allowed = f"{POLICY}max_counters = 200000\n"
    async with query_trial(tmp_path, 5, policies=[allowed] * 5) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(asked(tree, COUNT))
    ordered = np.sort(np.concatenate([ages_of(place) for place in range(5)]))
    assert value(shown) == pytest.approx(ordered[-(-len(ordered) // 2) - 1], abs=128 / 2**16)
