"""Malicious sites whose weapon is when they send: between two rounds, at the close, or before the one that counts."""

from __future__ import annotations

import asyncio
import hashlib
import threading

import numpy as np
import pytest
from foedus.protos.v1 import common_pb2, transfer_pb2
from loopback import loopback, plan

pytestmark = pytest.mark.adversarial

HONEST = {"a": 1.0, "b": 1.25, "c": 1.5, "d": 1.75}
POISON, WORTHLESS = 1e6, np.nan


def update(value: float) -> bytes:
    """An update of the toy model: the value, then zeros."""
    return np.array([value, 0, 0, 0, 1, 1], np.float32).tobytes() + np.int64(3).tobytes()


async def connected(local, *names):
    sites = {name: local.site(name) for name in names}
    for site in sites.values():
        await site.connect()
    return sites


def in_two_halves(site, order, data, go_on):
    """An upload that stops after its first half until it is told to go on."""
    half = len(data) // 2
    yield transfer_pb2.UploadMessage(header=site.header(order, data))
    yield transfer_pb2.UploadMessage(chunk=common_pb2.Chunk(offset=0, data=data[:half]))
    assert go_on.wait(60)
    yield transfer_pb2.UploadMessage(chunk=common_pb2.Chunk(offset=half, data=data[half:]))


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_late_update_and_a_worthless_one_after_it_disarm_nothing(tmp_path):
    """The liar that shows itself is no longer expected, so that nothing of it may count."""
    async with loopback(tmp_path) as local:
        sites = await connected(local, *HONEST, "eve")
        cohort = {"count": 5, "quorum": 3, "deadline_seconds": 1, "late": "keep"}
        run = await local.submit(plan(rounds=2, cohort=cohort, aggregator={"name": "trimmed-mean", "f": 1}))
        first = await sites["eve"].hear("assignment")
        for name, value in HONEST.items():
            assert (await sites[name].upload(await sites[name].hear("assignment"), update(value))).accepted
        second = await sites["eve"].hear("assignment")
        assert (first.work.round, second.work.round) == (1, 2)
        assert (await sites["eve"].upload(first, update(POISON))).accepted
        assert not (await sites["eve"].upload(second, update(WORTHLESS))).accepted
        for name, value in HONEST.items():
            assert (await sites[name].upload(await sites[name].hear("assignment"), update(value))).accepted
        shown = await local.ended(run)
        assert shown.state == "finished", shown.reason
        trained = local.model(shown.last_sha256).trainable_D[0]
        assert 2 * min(HONEST.values()) <= trained <= 2 * max(HONEST.values())


@pytest.mark.parametrize("late", ["drop", "keep"])
async def test_what_turns_out_worthless_after_the_close_is_late(tmp_path, late):
    """A closed round stands: a restart must find as many liars exposed as when its updates were combined."""
    async with loopback(tmp_path) as local:
        sites = await connected(local, "a", "b", "eve")
        cohort = {"count": 2, "over_selection": 0.5, "deadline_seconds": 60, "late": late}
        run = await local.submit(plan(rounds=2, cohort=cohort, aggregator={"name": "median"}))
        order, data, go_on = await sites["eve"].hear("assignment"), update(WORTHLESS), threading.Event()
        upload = asyncio.create_task(sites["eve"].send(in_two_halves(sites["eve"], order, data, go_on)))
        partial = local.fed.inbox.partial(run, 1, "eve", hashlib.sha256(data).hexdigest())
        await until(lambda: partial.is_file() and partial.stat().st_size)
        for name in "ab":
            assert (await sites[name].upload(await sites[name].hear("assignment"), update(1.0))).accepted
        await until(lambda: local.fed.rounds.last(run).number == 2)
        go_on.set()
        assert not (await upload)[-1].receipt.accepted
        (part,) = [p for p in (await local.show(run)).rounds[0].participations if p.site == "eve"]
        assert part.verdict == "late"
        assert local.fed.participations.worthless(run, 1) == []


async def test_the_fast_ones_do_not_close_a_round_before_its_reference_is_in(tmp_path):
    async with loopback(tmp_path) as local:
        sites = await connected(local, *HONEST, "trusted")
        cohort = {"count": 3, "over_selection": 1.0, "deadline_seconds": 60}
        run = await local.submit(plan(cohort=cohort, aggregator={"name": "fltrust", "f": 1, "reference": "trusted"}))
        order = await sites["trusted"].hear("assignment")
        for name in "abc":
            assert (await sites[name].upload(await sites[name].hear("assignment"), update(HONEST[name]))).accepted
        assert local.fed.rounds.last(run).state == "collecting"
        assert (await sites["trusted"].upload(order, update(1.0))).accepted
        shown = await local.ended(run)
        assert shown.state == "finished", shown.reason
        verdicts = {p.site: p.verdict for p in shown.rounds[0].participations}
        assert verdicts == {"a": "accepted", "b": "accepted", "c": "accepted", "d": "absent", "trusted": "accepted"}
