"""A server that lies about a secure sum, against real sites: they leave, say why, and send no update under masks."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from foedus.client_sdk.sum_store import SumStore
from foedus.client_sdk.sums import Sums, local_of
from foedus.privacy.secagg.collect import Phase as SumPhase
from foedus.privacy.secagg.collect import offered
from foedus.privacy.secagg.state import Stage
from foedus.protos.config_digest import config_sha256
from foedus.protos.messages import Phase, Refusal, SecureMessage, Work
from foedus.server.assignments import assignment
from foedus.server.coordinators import secure
from real_sites import serving
from secure_trial import VALUES, kept, secure_trial

pytestmark = pytest.mark.adversarial


@pytest.fixture
async def trial(tmp_path):
    async with secure_trial(tmp_path) as made:
        await made.enrol(*VALUES)
        made.sign()
        yield made


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ({"model_digest": bytes(32)}, "policy: the session is about another model"),
        ({"layout_digest": bytes(32)}, "policy: the session is about another tensor layout"),
        ({"config_digest": bytes(32)}, "policy: the session is about another configuration"),
        ({"num_coordinates": 4}, "policy: the session sums 4 coordinates, the layout has 3"),
        ({"run": "another"}, "policy: the session is of round 1 of run another, the assignment of"),
        ({"round": 2}, "policy: the session is of round 2 of run"),
        ({"federation": "lungs"}, "policy: the session names another federation"),
        ({"roster_digest": bytes(32)}, "policy: the session names another federation or another roster"),
        ({"min_sites": 2, "min_survivors": 2}, "policy: min_sites"),
        ({"colluders": 0, "threshold": 3}, "policy: the session withstands 0 colluding sites"),
        ({"clip_norm": 1e9, "scale": 1.0}, "policy: the clip norm"),
    ],
)
async def test_a_descriptor_that_lies_is_refused_by_every_site(trial, monkeypatch, lie, told):
    honest = secure.describe
    monkeypatch.setattr(secure, "describe", lambda *args: dataclasses.replace(honest(*args), **lie))
    async with serving(trial.local, *trial.homes):
        run = await trial.submit()
        shown = await trial.local.ended(run)
    assert (shown.state, "0 sites have sent keys" in shown.reason) == ("failed", True)
    assert set(trial.verdicts(run).values()) == {"refused"}
    assert told in trial.reason(run, "site-0")
    assert kept(trial.homes[0], run) is None


def unread(session):
    raise AssertionError("no sketch is asked for")


async def unfetched(sha256, num_bytes):
    raise AssertionError("nothing is too long for a session")


async def heard(home, order, *messages):
    """What a site says to messages of the server about an assignment."""
    said, spoken, store = [], asyncio.Event(), SumStore.open(home.sums)

    def say(message):
        said.append(message)
        spoken.set()

    sums = Sums(home, store, say, lambda work: None, unread, unfetched)
    running = asyncio.create_task(sums.run())
    try:
        sums.announce(order)
        await sums.expect(order, local_of(order, 3))
        for message in messages:
            await sums.hear(SecureMessage(order.work, message))
        async with asyncio.timeout(30):
            await spoken.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        store.close()
    return said


async def offer_again(trial, run, **changes):
    """An assignment like that of a run's first round, and the offer of a second attempt at it."""
    fed = trial.local.fed
    work = changes.pop("work", Work(run, 1, Phase.TRAIN))
    order = assignment(fed, fed.runs.find(run), fed.rounds.find(run, 1), Phase.TRAIN)
    order = dataclasses.replace(order, work=work)
    before = kept(trial.homes[0], run).descriptor
    session = dataclasses.replace(before, attempt=2, config_digest=config_sha256(order), **changes)
    return order, offered(session, fed.rosters.latest())


@pytest.mark.parametrize("disguised", [False, True])
async def test_a_round_that_was_revealed_is_not_opened_again_under_another_name(trial, disguised):
    """The offer of a second attempt, in a message about another run, must not take the place of what was revealed."""
    async with serving(trial.local, *trial.homes):
        run = await trial.submit()
        await trial.is_the_mean_of(run, *VALUES)
    state = kept(trial.homes[0], run)
    assert state.stage is Stage.REVEALED
    names = {"work": Work("another", 1, Phase.TRAIN)} if disguised else {}
    (said,) = await heard(trial.homes[0], *(await offer_again(trial, run, **names)))
    assert isinstance(said, Refusal)
    assert ("already-revealed" in said.reason) is not disguised
    assert kept(trial.homes[0], run) == state


async def test_a_round_before_the_last_is_never_joined_again(trial):
    async with serving(trial.local, *trial.homes):
        run = await trial.submit()
        await trial.is_the_mean_of(run, *VALUES)
    order, offer = await offer_again(trial, run)
    store = SumStore.open(trial.homes[0].sums)
    store.forget(run, 2)
    assert store.find(run, 1) is None
    assert store.model_used_in(order.model_sha256) == (run, 1)
    assert store.roster_version() == 1
    store.close()
    (said,) = await heard(trial.homes[0], order, offer)
    assert said.reason == f"already-revealed: round 1 of run {run} is over"


async def test_two_sums_from_one_model_that_were_joined_together_are_not_both_sent_to(trial):
    trial.hold(*trial.homes)
    async with serving(trial.local, *trial.homes):
        first, second = await trial.submit(), await trial.submit()
        for run in (first, second):
            await trial.until(lambda run=run: trial.phase(run) is SumPhase.MASKED, "both sums are joined by all")
        trial.let_go(*trial.homes)
        await trial.is_the_mean_of(first, *VALUES)
        shown = await trial.local.ended(second)
    assert shown.state == "failed"
    assert f"model-reused: it was used in round 1 of run {first}" in trial.reason(second, "site-0")
    assert not kept(trial.homes[0], second).exposures


async def test_offers_that_were_never_announced_make_room_for_later_ones(trial):
    async with serving(trial.local, *trial.homes):
        run = await trial.submit()
        await trial.is_the_mean_of(run, *VALUES)
    order, offer = await offer_again(trial, run)
    first, last = (dataclasses.replace(order, work=Work("flood", number, Phase.TRAIN)) for number in (1, 1000))
    said, spoken, store = [], asyncio.Event(), SumStore.open(trial.homes[0].sums)
    sums = Sums(trial.homes[0], store, said.append, lambda work: spoken.set(), unread, unfetched)
    running = asyncio.create_task(sums.run())
    for number in range(1, 1001):
        await sums.hear(SecureMessage(Work("flood", number, Phase.TRAIN), offer))
    for announced in (first, last):
        sums.announce(announced)
        await sums.expect(announced, local_of(announced, 3))
    async with asyncio.timeout(30):
        await spoken.wait()
    assert [message.work for message in said] == [last.work]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    store.close()
