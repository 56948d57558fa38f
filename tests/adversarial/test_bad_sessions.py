"""What a broken or hostile site can say on its session, and what of it an operator sees."""

from __future__ import annotations

import asyncio

import pytest
from foedus.errors import (
    FoedusError,
    MessageTooLarge,
    NotApproved,
    ProtocolError,
    RateLimited,
    StaleRound,
    VersionMismatch,
)
from foedus.protos.messages import Hello, TaskOffer
from foedus.protos.v1 import common_pb2, operations_pb2, session_pb2
from foedus.protos.wire import site_message_to_pb
from loopback import CODE, RawSite, loopback, plan, update_bytes

pytestmark = pytest.mark.adversarial

HELLO = site_message_to_pb(Hello("0.1.0", (TaskOffer("toy", CODE),), 0.0))
WORK = common_pb2.Work(run="abc", round=1, phase=1)


def hello(**changes):
    values = {"version": "0.1.0", "tasks": [session_pb2.TaskOffer(name="toy", code_sha256=CODE)], **changes}
    return session_pb2.SiteMessage(hello=session_pb2.Hello(**values))


def beat(work=None, progress=0):
    return session_pb2.SiteMessage(heartbeat=session_pb2.Heartbeat(work=work, progress=progress))


def refusal(work=WORK, code="SiteVeto", reason="no"):
    return session_pb2.SiteMessage(refusal=session_pb2.Refusal(work=work, code=code, reason=reason))


def evaluation(work, sha256="ab" * 32, num_examples=1, **metrics):
    return session_pb2.SiteMessage(
        evaluation=session_pb2.Evaluation(work=work, model_sha256=sha256, num_examples=num_examples, metrics=metrics)
    )


FIRST = {
    "heartbeat": (beat(), ProtocolError, "begins with Hello"),
    "empty": (session_pb2.SiteMessage(), ProtocolError, "empty message"),
    "too old": (hello(version="9.0.0"), VersionMismatch, "at most one minor version apart"),
    "no version": (hello(version=""), ProtocolError, "version is ''"),
    "bad version": (hello(version="one"), VersionMismatch, "at most one minor"),
    "bad task": (
        hello(tasks=[session_pb2.TaskOffer(name="../x", code_sha256=CODE)]),
        ProtocolError,
        "a task's name is '../x'",
    ),
    "bad code": (hello(tasks=[session_pb2.TaskOffer(name="x", code_sha256="1")]), ProtocolError, "code_sha256 is '1'"),
    "too many tasks": (
        hello(tasks=[session_pb2.TaskOffer(name=f"t{n}", code_sha256=CODE) for n in range(257)]),
        ProtocolError,
        "offers 257 tasks, at most 256",
    ),
    "huge": (refusal(reason="x" * (5 << 20)), MessageTooLarge, "larger than max"),
}


@pytest.mark.parametrize(("message", "error", "reason"), FIRST.values(), ids=FIRST)
async def test_wrong_first_words(tmp_path, message, error, reason):
    async with loopback(tmp_path) as local:
        site = local.site("a")
        site.dial()
        site.say(message)
        with pytest.raises(error, match=reason):
            await site.hear("welcome")
        assert len(local.fed.sessions) == 0
        await site.connect()


async def test_hanging_up_before_hello(tmp_path):
    async with loopback(tmp_path) as local:
        site = local.site("a")
        site.dial()
        site.say(None)
        with pytest.raises(ProtocolError, match="ended before Hello"):
            await site.hear()


LATER = {
    "hello again": (HELLO, ProtocolError, "Hello was sent twice"),
    "empty": (session_pb2.SiteMessage(), ProtocolError, "empty message"),
    "refusing what was not asked": (refusal(), StaleRound, "was not asked for run abc"),
    "evaluating what was not asked": (evaluation(WORK), StaleRound, "was not asked for run abc"),
    "no phase": (refusal(common_pb2.Work(run="a", round=1)), ProtocolError, "phase 0 is unknown"),
    "unknown phase": (beat(common_pb2.Work(run="a", round=1, phase=77)), ProtocolError, "phase 77 is unknown"),
    "no round": (beat(common_pb2.Work(run="a", phase=1)), ProtocolError, "round is 0"),
    "no code": (refusal(code=""), ProtocolError, "refusal code is ''"),
    "markup as code": (refusal(code="<b>"), ProtocolError, "refusal code is '<b>'"),
    "metrics NaN": (evaluation(WORK, loss=float("nan")), ProtocolError, "metric 'loss' is nan"),
    "too many metrics": (evaluation(WORK, **{f"m{n}": 0.0 for n in range(65)}), ProtocolError, "65 metrics"),
    "too many examples": (evaluation(WORK, num_examples=2**60), ProtocolError, "num_examples"),
    "huge": (refusal(reason="x" * (5 << 20)), MessageTooLarge, "larger than max"),
}


@pytest.mark.parametrize(("message", "error", "reason"), LATER.values(), ids=LATER)
async def test_wrong_later_words_end_the_session_and_nothing_else(tmp_path, message, error, reason):
    async with loopback(tmp_path) as local:
        site = local.site("a")
        await site.connect()
        site.say(message)
        with pytest.raises(error, match=reason):
            await site.hear("assignment")
        while len(local.fed.sessions):
            await local.fed.sessions.change()
        await site.connect()
        run = await local.submit(plan(cohort={"count": 1}))
        assert (await site.upload(await site.hear("assignment"), update_bytes(1.0))).accepted
        assert (await local.ended(run)).state == "finished"


async def test_a_hundred_thousand_tiny_messages_are_cut_off_early(tmp_path):
    async with loopback(tmp_path, limits={"calls_per_second": 0.01, "burst": 100}) as local:
        flood, calm = local.site("flood"), local.site("calm")
        await calm.connect()
        await flood.connect()
        for _ in range(100_000):
            flood.say(beat())
        with pytest.raises(FoedusError):  # which one depends on whether gRPC was reading or writing
            await flood.hear("assignment")
        while local.fed.sessions.get("flood") is not None:
            await local.fed.sessions.change()
        assert flood.outgoing.qsize() > 50_000
        with pytest.raises(RateLimited, match=r"0\.01 calls per second"):
            await flood.connect()
        run = await local.submit(plan(cohort={"count": 1}))
        assert (await calm.upload(await calm.hear("assignment"), update_bytes(1.0))).accepted
        assert (await local.ended(run)).state == "finished"


async def test_a_second_session_replaces_the_first(tmp_path):

    async with loopback(tmp_path) as local:
        first = local.site("a")
        await first.connect()
        second = RawSite("a", first.channel)
        await second.connect()
        with pytest.raises(ProtocolError, match="replaced by a newer session"):
            await first.hear("assignment")
        await local.submit(plan(cohort={"count": 1}))
        assert (await second.hear("assignment")).task == "toy"


async def test_after_a_reconnection_the_site_is_told_again_what_is_outstanding(tmp_path):
    async with loopback(tmp_path) as local:
        site = local.site("a")
        await site.connect()
        await local.submit(plan(cohort={"count": 1}))
        order = await site.hear("assignment")
        site.say(None)
        await site.hear()
        await site.connect()
        assert await site.hear("assignment") == order


@pytest.mark.parametrize("action", ["suspend", "revoke"])
async def test_a_suspended_site_is_cut_off_and_its_round_goes_on(tmp_path, action):
    async with loopback(tmp_path) as local:
        good, bad = local.site("good"), local.site("bad")
        await good.connect()
        await bad.connect()
        run = await local.submit()
        order = await good.hear("assignment")
        assert (await good.upload(order, update_bytes(1.0))).accepted
        # It keeps the round open with progress that means nothing, for ever.
        bad.say(beat(order.work, 1))
        changed = await local.operator().ChangeSite(operations_pb2.ChangeSiteRequest(name="bad", action=action))
        assert changed.state in ("suspended", "revoked")
        with pytest.raises(NotApproved, match="the site was"):
            await bad.hear("release")
        shown = await local.ended(run)
        assert shown.state == "finished"
        parts = {p.site: (p.verdict, p.code) for p in shown.rounds[0].participations}
        assert parts == {"good": ("accepted", ""), "bad": ("rejected", "NotApproved")}
        with pytest.raises(NotApproved):
            await bad.connect()
        if action == "suspend":
            await local.operator().ChangeSite(operations_pb2.ChangeSiteRequest(name="bad", action="approve"))
            await bad.connect()


async def test_a_site_that_is_cut_off_while_the_run_is_paused_is_not_waited_for(tmp_path):
    async with loopback(tmp_path) as local:
        good, bad = local.site("good"), local.site("bad")
        await good.connect()
        await bad.connect()
        run = await local.submit()
        order = await good.hear("assignment")
        stub = local.operator()
        await stub.ChangeRun(operations_pb2.ChangeRunRequest(run=run, action="pause"))
        await stub.ChangeSite(operations_pb2.ChangeSiteRequest(name="bad", action="revoke"))
        assert (await good.upload(order, update_bytes(1.0))).accepted  # also while paused
        await stub.ChangeRun(operations_pb2.ChangeRunRequest(run=run, action="resume"))
        assert (await local.ended(run)).state == "finished"


async def test_refusals_are_shown_to_the_operator_with_their_reason(tmp_path):
    async with loopback(tmp_path) as local:
        good, bad = local.site("good"), local.site("bad")
        await good.connect()
        await bad.connect()
        run = await local.submit()
        order = await good.hear("assignment")
        bad.say(refusal(order.work, "SiteVeto", "not on a Sunday\x1b[31m\n" + "x" * 10_000))
        assert (await good.upload(order, update_bytes(1.0))).accepted
        shown = await local.ended(run)
        part = next(p for p in shown.rounds[0].participations if p.site == "bad")
        assert (part.verdict, part.code) == ("refused", "SiteVeto")
        assert part.reason.startswith("not on a Sunday [31m xxx")
        assert len(part.reason) == 500
        assert shown.state == "finished"


async def test_a_refusal_after_the_update_changes_nothing(tmp_path):
    async with loopback(tmp_path) as local:
        a, b = local.site("a"), local.site("b")
        await a.connect()
        await b.connect()
        run = await local.submit()
        order = await a.hear("assignment")
        assert (await a.upload(order, update_bytes(1.0))).accepted
        a.say(refusal(order.work))
        assert (await b.upload(order, update_bytes(1.0))).accepted
        shown = await local.ended(run)
        assert {p.verdict for p in shown.rounds[0].participations} == {"accepted"}


async def test_nobody_offers_the_task(tmp_path):
    async with loopback(tmp_path) as local:
        site = local.site("a")
        await site.connect("heart")
        run = await local.submit(plan(task="lung", cohort={"minimum": 1, "patience_seconds": 0.1}))
        shown = await local.ended(run)
        assert shown.state == "failed"
        assert "waiting for 1 sites with task 'lung', 0 connected" in shown.reason


class Evaluated:
    """A round whose model two sites are asked to evaluate."""

    def __init__(self, local):
        self.local, self.a, self.b = local, local.site("a"), local.site("b")

    async def begin(self, **evaluation):
        for site in (self.a, self.b):
            await site.connect()
        self.run = await self.local.submit(
            plan(evaluation={"every": 1, "metric": "auc", **evaluation}, aggregator={"max_examples": 100})
        )
        for site in (self.a, self.b):
            assert (await site.upload(await site.hear("assignment"), update_bytes(1.0))).accepted
        self.order = await self.a.hear("assignment")
        assert await self.b.hear("assignment") == self.order
        assert self.order.work.phase == 2
        return self

    def say(self, site, num_examples, **metrics):
        site.say(evaluation(self.order.work, self.order.model_sha256, num_examples, **metrics))


async def test_evaluations_are_averaged_and_the_best_is_kept(tmp_path):
    async with loopback(tmp_path) as local:
        found = await Evaluated(local).begin()
        found.say(found.a, 30, auc=0.9, loss=1.0)
        found.say(found.b, 10, auc=0.5)
        shown = await local.ended(found.run)
        assert dict(shown.rounds[0].evaluation_metrics) == {"auc": pytest.approx(0.8), "loss": 1.0}
        assert shown.best_sha256 == shown.last_sha256 == found.order.model_sha256


@pytest.mark.parametrize("value", [1.7976931348623157e308, -1.7976931348623157e308])
async def test_no_evaluation_can_make_a_metric_infinite_or_outweigh_the_cap(tmp_path, value):
    async with loopback(tmp_path) as local:
        found = await Evaluated(local).begin()
        found.say(found.a, 2**53, auc=value, other=1.0)
        found.say(found.b, 100, auc=value, other=0.0)
        shown = await local.ended(found.run)
        assert shown.state == "finished"
        assert dict(shown.rounds[0].evaluation_metrics) == {"auc": value, "other": 0.5}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda order: evaluation(order.work, "cd" * 32), "evaluated another model"),
        (lambda order: evaluation(common_pb2.Work(run=order.work.run, round=1, phase=1)), "was not asked for"),
        (lambda order: evaluation(common_pb2.Work(run=order.work.run, round=9, phase=2)), "was not asked for"),
    ],
    ids=["another model", "the wrong phase", "another round"],
)
async def test_a_wrong_evaluation_does_not_count(tmp_path, wrong, reason):
    async with loopback(tmp_path) as local:
        found = await Evaluated(local).begin()
        found.a.say(wrong(found.order))
        with pytest.raises(StaleRound, match=reason):
            await found.a.hear("release")
        found.say(found.b, 10, auc=0.5)
        await found.a.connect()
        assert await found.a.hear("assignment") == found.order
        found.say(found.a, 10, auc=0.7)
        found.say(found.a, 10, auc=99.0)  # the first word counts
        shown = await local.ended(found.run)
        assert dict(shown.rounds[0].evaluation_metrics) == {"auc": pytest.approx(0.6)}


async def test_no_examples_no_metric(tmp_path):
    async with loopback(tmp_path) as local:
        found = await Evaluated(local).begin(target=0.5)
        found.say(found.a, 0, auc=99.0)
        found.b.say(refusal(found.order.work))
        shown = await local.ended(found.run)
        assert shown.state == "finished"
        assert dict(shown.rounds[0].evaluation_metrics) == {}
        assert shown.best_sha256 == ""


async def test_silence_is_absence_and_the_round_closes_with_its_quorum(tmp_path):
    async with loopback(tmp_path) as local:
        a, b = local.site("a"), local.site("b")
        await a.connect()
        await b.connect()
        run = await local.submit(plan(cohort={"count": 2, "quorum": 1, "deadline_seconds": 0.2}))
        order = await a.hear("assignment")
        assert (await a.upload(order, update_bytes(1.0))).accepted
        shown = await local.ended(run)
        assert {p.site: p.verdict for p in shown.rounds[0].participations} == {"a": "accepted", "b": "absent"}
        assert (await b.hear("release")).outcome == 3
        late = await b.upload(order, update_bytes(1.0))
        assert (late.accepted, late.code) == (False, "StaleRound")


async def test_sessions_end_typed_when_the_server_drains(tmp_path):
    async with loopback(tmp_path) as local:
        site = local.site("a")
        await site.connect()
        channels, local.channels = local.channels, []
        ending = asyncio.create_task(site.hear("assignment"))
    with pytest.raises(FoedusError, match="draining") as caught:
        await ending
    assert caught.value.code in ("Draining", "ProtocolError")
    for channel in channels:
        await channel.close(None)
