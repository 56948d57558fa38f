"""Secure sums among liars: a site that speaks for another, or sends other words than it has signed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from foedus.errors import AccessDenied, FoedusError
from foedus.privacy.secagg.messages import Complaint
from foedus.privacy.secagg.signing import Kind, sign
from foedus.protos.messages import Phase, Work
from loopback import plan
from real_sites import serving
from secure_trial import VALUES, secure_plan, secure_trial

pytestmark = pytest.mark.adversarial

WORDS = np.arange(3, dtype=np.uint32)


class Trial:
    """Five honest sites and one raw one in a run."""

    def __init__(self, trial, run, eve):
        self.trial, self.local, self.homes = trial, trial.local, trial.homes
        self.run, self.eve, self.work = run, eve, Work(run, 1, Phase.TRAIN)

    @property
    def sid(self):
        return self.local.fed.sums.current(self.work).descriptor.sid

    async def is_the_mean_of(self, *values):
        await self.trial.is_the_mean_of(self.run, *values)

    def recorded(self):
        return len(self.local.fed.sums.records.newest(self.work).messages)


@pytest.fixture
async def trial(tmp_path):
    async with secure_trial(tmp_path) as made:
        homes = await made.enrol(*VALUES)
        (home,) = await made.enrol(0.0, names=("eve",))
        made.sign()
        async with serving(made.local, *homes):
            eve = await made.raw(home)
            yield Trial(made, await made.submit(secure_plan(6)), eve)


async def until_refused(trial, detail):
    async for happening in trial.local.fed.feed.watch():
        if happening.name == "message_refused" and detail in happening.detail:
            return


async def refused(trial, message, detail):
    """Send a message and wait until the server has said, for itself, why it does not take it."""
    waiting = asyncio.create_task(until_refused(trial, detail))
    await asyncio.sleep(0)
    trial.eve.say(message)
    async with asyncio.timeout(30):
        await waiting


async def test_a_message_in_anothers_name_ends_the_session_and_changes_nothing(trial):
    keys = await trial.eve.hear(Kind.OFFER)
    other = trial.homes[0].signer()
    sid = trial.sid
    trial.eve.say(sign(other, Kind.KEYS, sid, keys[53:-64]).to_bytes())
    with pytest.raises(AccessDenied, match="expected its own"):
        await trial.eve.hear(Kind.KEY_LIST)
    await trial.eve.raw.connect()  # and its own message is taken once it is back
    trial.eve.say(await trial.eve.hear(Kind.OFFER))
    await trial.eve.hear(Kind.DELIVER)
    trial.eve.refuse("SiteVeto", "changed its mind")
    await trial.is_the_mean_of(*VALUES)


async def test_garbage_floods_and_second_thoughts_are_refused_and_leave_no_record(trial):
    keys = await trial.eve.hear(Kind.OFFER)
    await refused(trial, b"\x02garbage", "bad-message")
    await refused(trial, sign(trial.eve.site.member.key, Kind.ACK, bytes(32), b"").to_bytes(), "another session")
    trial.eve.say(keys)
    answer = await trial.eve.hear(Kind.KEY_LIST)
    before = trial.recorded()
    sid = trial.sid
    await refused(trial, sign(trial.eve.site.member.key, Kind.KEYS, sid, bytes(96)).to_bytes(), "differs")
    for _ in range(20):
        trial.eve.say(keys)  # the same again
    trial.eve.say(answer)
    await trial.eve.hear(Kind.DELIVER)
    assert trial.recorded() <= before + 6 + 1 + 5  # shares, the closing, and masked updates of the others
    trial.eve.refuse("SiteVeto", "changed its mind")
    await trial.is_the_mean_of(*VALUES)


async def test_false_complaints_of_one_site_cost_no_dealer_its_place(trial):
    await trial.eve.hear(Kind.DELIVER)
    others = [site for site in trial.eve.site.state.dealers if site != trial.eve.site.id]
    sid = trial.sid
    trial.eve.say(sign(trial.eve.site.member.key, Kind.COMPLAINT, sid, Complaint(tuple(others)).to_bytes()).to_bytes())
    words = trial.eve.masked(1.0)
    assert (await trial.eve.upload(words, trial.eve.site.sent[-1])).accepted
    trial.eve.say(await trial.eve.hear(Kind.ACK_LIST))
    await trial.is_the_mean_of(*VALUES, 1.0)
    assert {part.verdict for part in (await trial.local.show(trial.run)).rounds[0].participations} == {"accepted"}


async def test_words_that_are_not_those_signed_are_rejected(trial):
    await trial.eve.hear(Kind.DELIVER)
    trial.eve.masked(1.0)
    receipt = await trial.eve.upload(WORDS.tobytes(), trial.eve.site.sent[-1])
    assert (receipt.accepted, receipt.code) == (False, "SecureSumFailed")
    assert "not the 12 bytes that were signed" in receipt.reason
    await trial.is_the_mean_of(*VALUES)


async def test_a_plain_update_in_a_masked_run_is_rejected(trial):
    await trial.eve.hear(Kind.DELIVER)
    receipt = await trial.eve.upload(np.ones(3, np.float32).tobytes(), num_examples=1)
    assert (receipt.accepted, receipt.code) == (False, "InvalidUpdate")
    assert "not masked, the run's protection is masks" in receipt.reason
    await trial.is_the_mean_of(*VALUES)


async def test_anothers_signature_on_masked_words_is_denied(trial):
    await trial.eve.hear(Kind.DELIVER)
    words = trial.eve.masked(1.0)
    sid = trial.sid
    forged = sign(trial.homes[0].signer(), Kind.MASKED, sid, trial.eve.site.sent[-1][53:-64]).to_bytes()
    with pytest.raises(AccessDenied):
        await trial.eve.upload(words, forged)
    with pytest.raises(FoedusError):
        await trial.eve.upload(words, b"\x07" * 200)
    assert (await trial.eve.upload(words, trial.eve.site.sent[-1])).accepted
    trial.eve.say(await trial.eve.hear(Kind.ACK_LIST))
    await trial.is_the_mean_of(*VALUES, 1.0)


async def test_a_masked_update_in_a_plain_run_is_rejected(tmp_path):
    async with secure_trial(tmp_path) as made:
        (home,) = await made.enrol(0.0, names=("eve",))
        eve = await made.raw(home)
        run = await made.submit(plan(cohort={"count": 1, "deadline_seconds": 30}))
        order = await eve.raw.hear("assignment")
        masked = sign(home.signer(), Kind.MASKED, bytes(32), bytes(32)).to_bytes()
        receipt = await eve.raw.upload(order, WORDS.tobytes(), masked=masked)
        assert (receipt.accepted, receipt.code) == (False, "InvalidUpdate")
        assert "masked, the run's protection is none" in receipt.reason
        await made.local.ended(run)
