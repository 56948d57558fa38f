"""While the server hashes what an earlier upload left, it serves the others, and anything may happen."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from foedus.errors import StaleRound
from foedus.protos.v1 import operations_pb2
from foedus.server.blobs import Inbox
from loopback import loopback, plan, update_bytes

UPDATE = update_bytes(1.0)
SECONDS = 20.0  # bounds a test that fails; nothing waits so long


class Held:
    """Holds the first ``open_partial`` until it is let go."""

    def __init__(self, monkeypatch):
        self.begun, self.go, self.in_time = asyncio.Event(), threading.Event(), []
        self.loop, self.first = asyncio.get_running_loop(), True
        real = Inbox.open_partial

        def open_partial(inbox, *values):
            if self.first:
                self.first = False
                self.loop.call_soon_threadsafe(self.begun.set)
                self.in_time.append(self.go.wait(SECONDS))
            return real(inbox, *values)

        monkeypatch.setattr(Inbox, "open_partial", open_partial)


@asynccontextmanager
async def uploading(tmp_path, monkeypatch):
    """A site whose upload the server is about to take up again."""
    async with loopback(tmp_path) as local:
        site = local.site("a")
        await site.connect()
        run = await local.submit(plan(cohort={"count": 1, "quorum": 1, "deadline_seconds": 60}))
        order = await site.hear("assignment")
        path = local.fed.inbox.partial(run, 1, "a", site.header(order, UPDATE).sha256)
        path.parent.mkdir(parents=True)
        path.write_bytes(UPDATE[:10])
        held = Held(monkeypatch)
        upload = asyncio.create_task(site.upload(order, UPDATE, [(10, UPDATE[10:])]))
        await asyncio.wait_for(held.begun.wait(), SECONDS)
        try:
            yield local, site, order, held, upload
        finally:
            held.go.set()
            await asyncio.gather(upload, return_exceptions=True)
        assert held.in_time == [True]


async def test_others_are_served_meanwhile(tmp_path, monkeypatch):
    async with uploading(tmp_path, monkeypatch) as (local, _, order, held, upload):
        status = await local.operator().Status(operations_pb2.StatusRequest())
        assert status.sites_connected == 1
        held.go.set()
        assert (await upload).accepted
        assert (await local.ended(order.work.run)).state == "finished"


async def test_of_two_streams_the_newer_goes_on(tmp_path, monkeypatch):
    async with uploading(tmp_path, monkeypatch) as (local, site, order, held, upload):
        assert (await site.upload(order, UPDATE, [(10, UPDATE[10:])])).accepted
        held.go.set()
        with pytest.raises(StaleRound, match="in another stream"):
            await upload
        assert (await local.ended(order.work.run)).state == "finished"


async def test_a_run_stopped_meanwhile(tmp_path, monkeypatch):
    async with uploading(tmp_path, monkeypatch) as (local, _, order, held, upload):
        await local.operator().ChangeRun(operations_pb2.ChangeRunRequest(run=order.work.run, action="stop"))
        held.go.set()
        receipt = await upload
        assert (receipt.accepted, receipt.code) == (False, "StaleRound")
        assert "is stopped" in receipt.reason
        assert (await local.show(order.work.run)).state == "stopped"
