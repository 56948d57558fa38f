"""What the server promises while its disk is full, or about to lose its power."""

from __future__ import annotations

import os

import pytest
from foedus.errors import DiskFull
from foedus.protos.v1 import operations_pb2
from foedus.server.history import RunState
from foedus.server.participation_records import ParticipationRecords
from foedus.server.run_records import RunRecords
from loopback import loopback, plan, typed

ALONE = plan(cohort={"count": 1, "quorum": 1, "deadline_seconds": 60})


def failing_once(monkeypatch, records, name):
    real, failures = getattr(records, name), [DiskFull("no space left")]

    def method(*values, **options):
        if failures:
            raise failures.pop()
        return real(*values, **options)

    monkeypatch.setattr(records, name, method)


async def test_an_initial_model_is_on_the_disk_before_its_run_is_recorded(tmp_path, monkeypatch):
    async with loopback(tmp_path) as local:
        synced, real = set(), os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: (synced.add(os.fstat(file).st_ino), real(file)))
        create, when = RunRecords.create, []

        def create_run(runs, wanted, sha256):
            when.append(local.fed.blobs.path(sha256).stat().st_ino in synced)
            return create(runs, wanted, sha256)

        monkeypatch.setattr(RunRecords, "create", create_run)
        await local.submit()
        assert when == [True]


@pytest.mark.parametrize("action", ["suspend", "revoke"])
async def test_a_change_of_a_site_that_failed_half_way_is_repeated(tmp_path, monkeypatch, action):
    async with loopback(tmp_path) as local:
        site = local.site("a")
        await site.connect()
        run = await local.submit(ALONE)
        await site.hear("assignment")
        stub, request = local.operator(), operations_pb2.ChangeSiteRequest(name="a", action=action)
        failing_once(monkeypatch, ParticipationRecords, "settle")
        with pytest.raises(DiskFull):
            await typed(stub.ChangeSite(request))
        assert (await typed(stub.ChangeSite(request))).state.startswith(action)
        shown = await local.ended(run)
        assert [(p.verdict, p.code) for p in shown.rounds[0].participations] == [("rejected", "NotApproved")]


async def test_a_run_that_was_held_and_then_paused_is_resumed_at_once(tmp_path, monkeypatch):
    async with loopback(tmp_path) as local:
        fed, site = local.fed, local.site("a")
        await site.connect()
        run = await local.submit(ALONE)
        await site.hear("assignment")
        failing_once(monkeypatch, RunRecords, "move")
        fed.hold(run, "the disk is full")  # not even this could be recorded
        assert (fed.runs.find(run).state, list(fed.held)) == (RunState.RUNNING, [run])
        fed.hold(run, "the disk is still full")  # now it can
        assert fed.runs.find(run).state is RunState.PAUSED
        resumed = await local.operator().ChangeRun(operations_pb2.ChangeRunRequest(run=run, action="resume"))
        assert (resumed.state, resumed.reason) == ("running", "")
        assert fed.runs.find(run).state is RunState.RUNNING
