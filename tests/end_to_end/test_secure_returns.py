"""Masked rounds in which sites go and come back, answer late, or the server cannot write: nothing counts twice."""

from __future__ import annotations

import asyncio

import pytest
from foedus.errors import DiskFull
from foedus.privacy.secagg.collect import Phase as SumPhase
from foedus.privacy.secagg.signing import Kind
from foedus.protos.v1 import operations_pb2
from foedus.server.sum_records import SumRecords
from loopback import typed
from real_sites import serving
from secure_trial import VALUES, secure_plan, secure_trial

IMPATIENT = {"minimum": 6, "quorum": 5, "deadline_seconds": 1.0}


@pytest.fixture
async def trial(tmp_path):
    async with secure_trial(tmp_path) as made:
        await made.enrol(*VALUES)
        await made.enrol(1.25, 1.5, names=("eve", "fay"))
        made.sign()
        yield made


async def change_run(trial, run, action):
    await typed(trial.local.operator().ChangeRun(operations_pb2.ChangeRunRequest(run=run, action=action)))


async def masked_by(member, value):
    """Take part until the update is in."""
    await member.hear(Kind.DELIVER)
    words = member.masked(value)
    assert (await member.upload(words, member.site.sent[-1])).accepted


async def test_a_site_that_reconnects_before_each_answer_is_told_again_what_it_has_to_answer(trial):
    async with serving(trial.local, *trial.homes[:5]):
        eve = await trial.raw(trial.homes[5])
        run = await trial.submit(secure_plan(6))
        for kind in (Kind.OFFER, Kind.KEY_LIST):
            first = await eve.hear(kind)
            await eve.raw.connect()  # replaces the session that is open
            again = await eve.hear(kind)
            assert again == first
            eve.say(again)
        await eve.hear(Kind.DELIVER)
        words = eve.masked(1.25)
        await eve.raw.connect()
        assert await eve.hear(Kind.DELIVER) is None
        assert (await eve.upload(words, eve.site.sent[-1])).accepted
        for kind in (Kind.SURVIVORS, Kind.ACK_LIST):
            first = await eve.hear(kind)
            await eve.raw.connect()
            assert await eve.hear(kind) == first
            eve.say(first)
        await trial.is_the_mean_of(run, *VALUES, 1.25)


async def test_a_site_that_was_let_go_while_it_was_away_is_told_when_it_is_back(trial):
    homes = trial.homes[:5]
    trial.hold(*homes)
    async with serving(trial.local, *homes):
        eve = await trial.raw(trial.homes[5])
        run = await trial.submit(secure_plan(6, cohort=IMPATIENT))
        await eve.hear(Kind.OFFER)
        eve.raw.say(None)
        await trial.until(lambda: trial.verdicts(run)["eve"] == "absent", "the sum goes on without it")
        await eve.raw.connect()
        release = await eve.raw.hear("release")
        assert (release.work.run, release.work.round) == (run, 1)
        assert "goes on without an answer" in release.reason
        trial.let_go(*homes)
        await trial.is_the_mean_of(run, *VALUES)


async def test_what_comes_for_a_sum_that_is_over_is_refused_and_ends_no_session(trial):
    homes = trial.homes[:5]
    async with serving(trial.local, *homes):
        eve = await trial.raw(trial.homes[5])
        run = await trial.submit(secure_plan(6))
        keys = await eve.hear(Kind.OFFER)
        await change_run(trial, run, "stop")
        eve.say(keys)
        async for happening in trial.local.fed.feed.watch():
            if happening.name == "message_refused":
                break
        assert (happening.site, happening.detail.split(":")[0]) == ("eve", "late")
        run = await trial.submit(secure_plan(6), start=1.0)
        await masked_by(eve, 1.25)
        eve.say(await eve.hear(Kind.ACK_LIST))
        await trial.is_the_mean_of(run, *VALUES, 1.25, start=1.0)


async def test_an_attempt_that_fails_after_masks_were_sent_is_made_again_with_the_same_updates(trial):
    """Too few acknowledge the survivors: all mask their updates again, and what was answered before is no answer."""
    homes = trial.homes[:4]
    async with serving(trial.local, *homes):
        slow = [await trial.raw(home) for home in trial.homes[5:]]
        cohort = {"minimum": 6, "quorum": 5, "deadline_seconds": 2.0}
        run = await trial.submit(secure_plan(6, cohort=cohort, max_failed_rounds=1))
        for kinds in ((Kind.SURVIVORS,), (Kind.SURVIVORS, Kind.ACK_LIST)):
            await asyncio.gather(*(masked_by(member, value) for member, value in zip(slow, (1.25, 1.5), strict=True)))
            for kind in kinds:
                answers = await asyncio.gather(*(member.hear(kind) for member in slow))
                for member, answer in zip(slow, answers, strict=True):
                    if len(kinds) == 2:
                        member.say(answer)
        await trial.is_the_mean_of(run, *VALUES[:4], 1.25, 1.5)
    assert trial.attempt(run) == 2
    assert [trial.trained(home) for home in homes] == [["1"]] * 4


async def test_a_site_that_left_while_it_trained_takes_part_in_the_next_attempt(trial):
    """Its thread cannot be interrupted, and ends when the next attempt has begun."""
    homes, left = trial.homes[:5], trial.homes[0]
    code = left.path / "toy.py"
    begins = "def train(arrays, job):\n"
    touch = '    (__import__("pathlib").Path(__file__).parent / "began").touch()\n'
    code.write_text(code.read_text().replace("if job.should_stop():", "if False:").replace(begins, begins + touch))
    policy = '[tasks.toy]\ncode_sha256 = "any"\n'
    left.policy.write_text(policy)
    trial.hold(*homes)
    async with serving(trial.local, *homes):
        eve = await trial.raw(trial.homes[5])
        cohort = {"minimum": 6, "quorum": 6, "deadline_seconds": 30}
        run = await trial.submit(secure_plan(cohort=cohort, max_failed_rounds=1))
        keys = await eve.hear(Kind.OFFER)
        await trial.until((left.path / "began").exists, "it trains")
        left.policy.write_text("[[")
        eve.say(keys)
        await trial.until(lambda: trial.verdicts(run)["site-0"] == "refused", "it leaves")
        assert "policy.toml" in trial.reason(run, "site-0")
        left.policy.write_text(policy)
        trial.let_go(*homes[1:])
        await masked_by(eve, 1.25)
        await masked_by(eve, 1.25)
        assert trial.attempt(run) == 2
        trial.let_go(left)
        eve.say(await eve.hear(Kind.ACK_LIST))
        await trial.is_the_mean_of(run, *VALUES, 1.25)


async def test_a_run_that_lacks_shares_is_held_and_ends_exactly_once_they_have_come(trial):
    async with serving(trial.local, *trial.homes[:4]):
        slow = [await trial.raw(home) for home in trial.homes[5:]]
        cohort = {"minimum": 6, "quorum": 5, "deadline_seconds": 2.0}
        run = await trial.submit(secure_plan(6, cohort=cohort))
        await asyncio.gather(*(masked_by(member, value) for member, value in zip(slow, (1.25, 1.5), strict=True)))
        withheld = await asyncio.gather(*(member.hear(Kind.ACK_LIST) for member in slow))
        shown = await trial.local.ended(run)
        assert shown.state == "paused"
        assert "shares of site" in shown.reason
        assert "resume once more sites are back" in shown.reason
        assert trial.phase(run) is SumPhase.UNMASK
        for member, message in zip(slow, withheld, strict=True):
            member.say(message)
        session = trial.local.fed.sums
        work = slow[0].order.work
        await trial.until(lambda: len(session.current(work).state.unmask) == 6, "the shares have come")
        await change_run(trial, run, "resume")
        await trial.is_the_mean_of(run, *VALUES[:4], 1.25, 1.5)
    assert trial.attempt(run) == 1


@pytest.mark.parametrize("number", [1, 5, 6, 12, 13, 18, 20, 25, 28])
async def test_a_message_that_cannot_be_recorded_holds_the_run_and_is_asked_for_again(trial, monkeypatch, number):
    """Whichever of the 29 records of five sites fails: nobody is believed to have said what no record has."""
    append, calls = SumRecords.append, 0

    def failing(self, *args):
        nonlocal calls
        calls += 1
        if calls == number:
            raise DiskFull("recording a message: no space left on the disk")
        append(self, *args)

    monkeypatch.setattr(SumRecords, "append", failing)
    async with serving(trial.local, *trial.homes[:5]):
        run = await trial.submit()
        await trial.until(lambda: trial.local.fed.runs.find(run).state == "paused", "the run is held")
        assert "no space left" in trial.local.fed.runs.find(run).reason
        await change_run(trial, run, "resume")
        await trial.is_the_mean_of(run, *VALUES)
    assert trial.attempt(run) == 1
    assert [trial.trained(home) for home in trial.homes[:5]] == [["1"]] * 5
