"""What a task returns or raises ends in a reason at the operator, never in a dead or dumb site."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest
from foedus.client_sdk import session as session_module
from foedus.client_sdk.desk import Desk
from foedus.client_sdk.outbox import Outbox
from foedus.client_sdk.session import Line
from foedus.client_sdk.site import Site
from foedus.errors import DiskFull
from loopback import loopback, plan
from real_sites import TASK, enrolled, serving


def told(shown, site, phase=1):
    return next(p for r in shown.rounds for p in r.participations if p.site == site and p.phase == phase)


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        ('return arrays, 10, {"loss": float("nan")}', "InvalidUpdate", "'loss' is nan"),
        ('return arrays, 10, {"val/loss": 0.5}', "InvalidUpdate", "'val/loss'"),
        ("return arrays, 1 << 60, {}", "InvalidUpdate", "num_examples is 1152921504606846976"),
        ("raise SystemExit(3)", "TaskFailed", "SystemExit: 3"),
        ("return next(iter([]))", "TaskFailed", "StopIteration"),
        ("import asyncio; raise asyncio.CancelledError", "TaskFailed", "CancelledError"),
        (r"raise ValueError('\udcff is no text')", "TaskFailed", "ValueError"),
    ],
)
async def test_training_that_ends_badly_is_told_and_the_site_goes_on(tmp_path, fault, code, reason):
    source = TASK.replace(
        "    if SECRET_FAULT:\n", f"    if not seen:\n        seen.append(1)\n        {fault}\n    if 0:\n"
    )
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a", source=source + "\nseen = []\n")
        async with serving(local, home):
            shown = await local.ended(await local.submit(plan(cohort={"count": 1})))
            part = told(shown, "a")
            assert (shown.state, part.verdict, part.code) == ("failed", "refused", code)
            assert reason in part.reason
            again = await local.ended(await local.submit(plan(cohort={"count": 1})))
        assert again.state == "finished"
        np.testing.assert_array_equal(local.model(again.last_sha256).trainable_D, np.full(4, 1.0))


@pytest.mark.parametrize(
    ("returned", "reason"), [('{"auc": float("nan")}', "'auc' is nan"), ('{"val/auc": 1.0}', "'val/auc'")]
)
async def test_an_evaluation_that_cannot_be_sent_is_a_refusal(tmp_path, returned, reason):
    source = TASK.replace('{"auc": float(arrays["w"][0])}', returned)
    wanted = plan(evaluation={"every": 1, "metric": "auc"})
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, "free"), await enrolled(local, "odd", source=source)]
        async with serving(local, *homes):
            shown = await local.ended(await local.submit(wanted))
            assert len(local.fed.sessions) == 2
        assert shown.state == "finished"
        part = told(shown, "odd", phase=2)
        assert (part.verdict, part.code) == ("refused", "TaskFailed")
        assert reason in part.reason


@pytest.mark.parametrize("end", ["raises", "is cancelled", "returns"])
@pytest.mark.parametrize("part", ["desk", "certificate"])
async def test_a_site_whose_desk_or_renewal_ended_ends(tmp_path, monkeypatch, caplog, part, end):
    """Rather than stay connected and do nothing."""
    over = asyncio.Event()

    async def doomed(_self):
        await over.wait()
        if end == "raises":
            raise ZeroDivisionError("an accident")
        if end == "is cancelled":
            raise asyncio.CancelledError

    owner, method = (Desk, "run") if part == "desk" else (Line, "_keep_certificate")
    monkeypatch.setattr(owner, method, doomed)
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a")
        site = asyncio.create_task(Site.from_home(home.path).serve())
        while not len(local.fed.sessions):
            await local.fed.sessions.change()
        with caplog.at_level(logging.ERROR, session_module.__name__):
            over.set()
            error = ZeroDivisionError if end == "raises" else RuntimeError
            with pytest.raises(error, match="an accident" if end == "raises" else f"{part} ended"):
                async with asyncio.timeout(20):
                    await site
        assert "site_broke" in caplog.text


async def test_a_call_that_is_broken_off_here_is_made_again(tmp_path, monkeypatch):
    """The desk survives a download whose channel was closed under it."""
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a")
        broken = []
        real = Desk._moved

        def moved(self, amount):
            if not broken:
                broken.append(amount)
                raise asyncio.CancelledError  # what gRPC raises in the loop over the chunks
            real(self, amount)

        monkeypatch.setattr(Desk, "_moved", moved)
        async with serving(local, home):
            shown = await local.ended(await local.submit(plan(cohort={"count": 1})))
        assert broken
        assert shown.state == "finished"


async def test_an_update_whose_file_is_gone_is_a_refusal(tmp_path, monkeypatch):
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a")
        real = Outbox.put

        def put(self, *args):
            parcel = real(self, *args)
            parcel.path.unlink()
            return parcel

        monkeypatch.setattr(Outbox, "put", put)
        async with serving(local, home):
            shown = await local.ended(await local.submit(plan(cohort={"count": 1})))
        part = told(shown, "a")
        assert (part.verdict, part.code) == ("refused", "InvalidUpdate")
        assert "cannot be read" in part.reason


async def test_a_status_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch, caplog):
    def full(*_args, **_options):
        raise DiskFull("no space left on the disk")

    monkeypatch.setattr("foedus.client_sdk.site.write", full)
    monkeypatch.setattr("foedus.client_sdk.site.STATUS_SECONDS", 0.01)
    closed = []
    real = Outbox.close
    monkeypatch.setattr(Outbox, "close", lambda self: (closed.append(self), real(self)))
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a")
        async with serving(local, home):
            shown = await local.ended(await local.submit(plan(cohort={"count": 1})))
        assert shown.state == "finished"
    assert len(closed) == 1
    assert caplog.text.count("status_not_written") == 1
