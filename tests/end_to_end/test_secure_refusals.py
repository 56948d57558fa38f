"""Masked rounds that somebody refuses, leaves, stops or takes part in twice: who is told what, and the sum is exact."""

from __future__ import annotations

import asyncio
import dataclasses
import os

import pytest
from foedus.privacy.secagg.collect import Phase as SumPhase
from foedus.privacy.secagg.messages import Shares
from foedus.privacy.secagg.signing import Kind, Signed, sign
from foedus.protos.v1 import operations_pb2
from loopback import typed
from real_sites import serving
from secure_trial import VALUES, kept, secure_plan, secure_trial


@pytest.fixture
async def trial(tmp_path):
    async with secure_trial(tmp_path) as made:
        yield made


async def publish(trial):
    """Sign a roster and publish it as an operator does."""
    trial.sign()
    trial.local.fed.feed.publish("roster_published")


async def change_site(trial, name, action):
    await typed(trial.local.operator().ChangeSite(operations_pb2.ChangeSiteRequest(name=name, action=action)))


async def change_run(trial, run, action):
    await typed(trial.local.operator().ChangeRun(operations_pb2.ChangeRunRequest(run=run, action=action)))


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ('protections = ["none"]\n', "SiteVeto: the run's protection is masks, the site's policy allows none"),
        ("[secure]\nmin_sites = 7\n", "PolicyRefused: policy: min_sites is 5, this site expects 7"),
        ("[secure]\nlargest_clip_norm = 5.0\n", "PolicyRefused: policy: the clip norm 10 is outside 1e-06 to 5"),
        ("[secure]\ncolluding_percent = 40\n", "withstands 2 colluding sites, this site expects 3 of 6"),
    ],
)
async def test_a_site_whose_policy_forbids_the_session_is_left_out_and_says_why(trial, policy, told):
    await trial.enrol(*VALUES)
    await trial.enrol(8.0, policy=policy, names=("strict",))
    trial.sign()
    async with serving(trial.local, *trial.homes):
        run = await trial.submit(secure_plan(6))
        await trial.is_the_mean_of(run, *VALUES)
    assert trial.verdicts(run)["strict"] == "refused"
    assert told in trial.reason(run, "strict")
    assert trial.trained(trial.homes[-1]) in ([], ["1"])  # it may have begun before the offer came


async def test_a_site_without_roster_key_says_what_to_do(trial):
    await trial.enrol(*VALUES, 8.0)
    trial.sign()
    trial.homes[-1].roster_key.unlink()
    async with serving(trial.local, *trial.homes):
        run = await trial.submit(secure_plan(6))
        await trial.is_the_mean_of(run, *VALUES)
    assert "this site has pinned no roster key, so it takes part in no secure sum" in trial.reason(run, "site-5")


async def test_without_a_roster_the_run_waits_says_for_what_and_goes_on_once_there_is_one(trial):
    await trial.enrol(*VALUES)
    async with serving(trial.local, *trial.homes):
        run = await trial.submit()
        await trial.until(lambda: trial.local.fed.runs.find(run).reason, "the run says for what it waits")
        reason = trial.local.fed.runs.find(run).reason
        assert reason.startswith("waiting for 5 sites with task 'toy', 0 connected; no roster names any")
        assert "foedus roster sign" in reason
        await publish(trial)
        await trial.is_the_mean_of(run, *VALUES)


async def test_a_site_that_the_roster_does_not_name_is_not_asked(trial):
    await trial.enrol(*VALUES[:4])
    trial.sign()
    await trial.enrol(VALUES[4], 8.0)
    async with serving(trial.local, *trial.homes):
        run = await trial.submit()
        told = "waiting for 5 sites with task 'toy', 4 connected that the roster names"
        await trial.until(lambda: trial.local.fed.runs.find(run).reason == told, told)
        await change_site(trial, "site-5", "suspend")
        await publish(trial)
        await trial.is_the_mean_of(run, *VALUES)
    assert "site-5" not in trial.verdicts(run)


async def test_a_model_that_was_summed_from_before_is_refused_with_what_to_do(trial):
    await trial.enrol(*VALUES)
    trial.sign()
    async with serving(trial.local, *trial.homes):
        first = await trial.submit()
        await trial.is_the_mean_of(first, *VALUES)
        second = await trial.local.ended(await trial.submit())
    assert (second.state, "too-few" in second.reason or "0 sites have sent keys" in second.reason) == ("failed", True)
    told = trial.reason(second.id, "site-0")
    assert f"this model was used in round 1 of run {first}" in told
    assert "begin with a model that nobody has trained from" in told


async def test_an_attempt_with_too_few_is_made_again_with_fresh_keys_and_nothing_is_trained_twice(trial):
    await trial.enrol(*VALUES)
    leaving = await trial.enrol(8.0, 9.0, names=("eve", "mallory"))
    trial.sign()
    real, fifth = trial.homes[:4], trial.homes[4]
    async with serving(trial.local, *real):
        liars = [await trial.raw(home) for home in leaving]
        trial.hold(*real)
        run = await trial.submit(secure_plan(5, max_failed_rounds=1))
        await asyncio.gather(*(liar.hear(Kind.DELIVER) for liar in liars))
        for liar in liars:
            liar.refuse("SiteVeto", "changed its mind")
            liar.raw.say(None)
        await trial.until(lambda: len(trial.local.fed.sessions) == 4, "they have left")
        trial.let_go(*real)
        await trial.until(lambda: "waiting for 5 sites" in trial.local.fed.runs.find(run).reason, "too few")
        async with serving(trial.local, fifth):
            await trial.is_the_mean_of(run, *VALUES)
    assert trial.attempt(run) == 2
    assert [trial.trained(home) for home in trial.homes[:5]] == [["1"]] * 5


async def test_a_dealer_whose_shares_do_not_open_is_left_out_of_the_next_attempt(trial):
    await trial.enrol(*VALUES)
    (home,) = await trial.enrol(8.0, names=("eve",))
    trial.sign()
    async with serving(trial.local, *trial.homes[:5]):
        eve = await trial.raw(home)
        run = await trial.submit(secure_plan(5, max_failed_rounds=1))
        dealt = Signed.from_bytes(await eve.hear(Kind.KEY_LIST))
        noise = [dataclasses.replace(item, ciphertext=os.urandom(82)) for item in Shares.from_bytes(dealt.body).sealed]
        eve.say(sign(eve.site.member.key, Kind.SHARES, dealt.sid, Shares(tuple(noise)).to_bytes()).to_bytes())
        await trial.is_the_mean_of(run, *VALUES)
    assert trial.attempt(run) == 2
    assert "eve" not in trial.verdicts(run)
    assert [trial.trained(home) for home in trial.homes[:5]] == [["1"]] * 5


async def test_over_selection_closes_without_the_slow_and_with_enough_to_open_the_sum(trial):
    homes = await trial.enrol(*VALUES, 0.75, -0.25, 8.0)
    trial.sign()
    trial.hold(homes[-1])
    async with serving(trial.local, *homes):
        cohort = {"count": 5, "over_selection": 0.6, "deadline_seconds": 600}
        run = await trial.submit(secure_plan(cohort=cohort))
        await trial.is_the_mean_of(run, *VALUES, 0.75, -0.25)
        assert trial.verdicts(run)["site-7"] == "absent"
        # The slow one is told, and is there for the next run.
        run = await trial.submit(secure_plan(cohort=cohort), start=1.0)
        await trial.until(lambda: trial.phase(run) is SumPhase.MASKED, "shares are dealt")
        trial.let_go(homes[-1])
        await trial.local.ended(run)


@pytest.mark.parametrize("phase", ["keys", "masked"])
async def test_a_paused_run_goes_on_in_the_same_session(trial, phase):
    homes = await trial.enrol(*VALUES)
    trial.sign()
    trial.hold(*homes)
    async with serving(trial.local, *homes):
        run = await trial.submit()
        if phase == "masked":
            await trial.until(lambda: trial.phase(run) is SumPhase.MASKED, "shares are dealt")
        else:
            await trial.until(lambda: trial.phase(run), "the sum is opened")
        await change_run(trial, run, "pause")
        trial.let_go(*homes)
        await trial.until(lambda: all(map(trial.trained, homes)), "training is done in the pause")
        await change_run(trial, run, "resume")
        await trial.is_the_mean_of(run, *VALUES)
    assert trial.attempt(run) == 1
    assert [trial.trained(home) for home in homes] == [["1"]] * 5


async def test_a_stopped_run_leaves_no_secret_at_the_sites_and_their_desks_are_free(trial):
    homes = await trial.enrol(*VALUES)
    trial.sign()
    trial.hold(*homes)
    async with serving(trial.local, *homes):
        run = await trial.submit()
        await trial.until(lambda: trial.phase(run) is SumPhase.MASKED, "shares are dealt")
        await change_run(trial, run, "stop")
        trial.let_go(*homes)
        await trial.is_the_mean_of(await trial.submit(start=1.0), *VALUES, start=1.0)
    for home in homes:
        state = kept(home, run)
        assert state is not None
        assert not any((state.seed, state.mask_key, state.seal_key, state.rounding, state.held, state.answers))


async def test_a_site_that_is_revoked_while_it_trains_is_not_waited_for(trial):
    homes = await trial.enrol(*VALUES, 8.0)
    trial.sign()
    trial.hold(homes[-1])
    async with serving(trial.local, *homes):
        cohort = {"minimum": 6, "quorum": 5, "deadline_seconds": 600}
        run = await trial.submit(secure_plan(cohort=cohort))
        await trial.until(lambda: list(trial.verdicts(run).values()).count("accepted") == 5, "five updates")
        await change_site(trial, "site-5", "revoke")
        await trial.is_the_mean_of(run, *VALUES)
        trial.let_go(homes[-1])
    assert "NotApproved" in trial.reason(run, "site-5")


async def test_two_runs_at_once_on_the_same_sites_are_both_exact(trial):
    homes = await trial.enrol(*VALUES)
    trial.sign()
    async with serving(trial.local, *homes):
        runs = {start: await trial.submit(secure_plan(rounds=1), start) for start in (0.0, 1.0, 2.0)}
        for start, run in runs.items():
            await trial.is_the_mean_of(run, *VALUES, start=start)


async def test_a_sum_that_waits_for_a_site_keeps_no_desk_from_another_run(trial):
    homes = await trial.enrol(*VALUES)
    (home,) = await trial.enrol(8.0, names=("eve",))
    trial.sign()
    async with serving(trial.local, *homes):
        eve = await trial.raw(home)
        patient = {"minimum": 6, "quorum": 6, "deadline_seconds": 600}
        waiting = await trial.submit(secure_plan(cohort=patient))
        await eve.hear(Kind.OFFER)
        eve.raw.say(None)  # without a word
        await trial.until(lambda: all(map(trial.trained, homes)), "all have trained")
        await trial.is_the_mean_of(await trial.submit(start=1.0), *VALUES, start=1.0)
        assert trial.phase(waiting) is SumPhase.KEYS
