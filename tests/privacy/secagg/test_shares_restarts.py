"""Shares over restarts: killed between any two phases, either side goes on with the very same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.errors import InvalidUpdate
from foedus.privacy.secagg.codes import AbortCode, Refusal
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.sharing_collect import SharingCollection
from foedus.privacy.secagg.sharing_opening import add_up_shares
from foedus.privacy.secagg.signing import Kind
from foedus.privacy.secagg.state import ERASED, Stage
from foedus.privacy.secagg.stored import restored, stored
from secure_sums import federation, local
from shared_sums import PHASES, ShareServer, deal, share_server, shared
from sketched_sums import SECRET

TEN = federation(10)
BECAUSE = Refusal(AbortCode.POLICY, "because", (b"a" * 16,))


def at(phase: Phase) -> ShareServer:
    run = share_server(TEN, shared(TEN))
    run.to(phase)
    return run


@pytest.mark.parametrize("phase", PHASES)
def test_a_state_is_read_as_it_was_stored_and_ends_without_a_secret(phase: Phase) -> None:
    for site in at(phase).sites.values():
        state = site.state
        assert restored(stored(state)) == state
        ended = restored(stored(state.ended(BECAUSE)))
        assert ended.stage is Stage.ENDED
        assert ended.sharing is None
        assert ended.exposures == state.exposures
        assert bool(state.exposures) == (phase is not Phase.KEYS)
        assert state.remembered().exposures == state.exposures
        assert state.remembered().sharing is None
        assert not any((ended.held, ended.seal_key, ended.mask_key, ended.seed, ended.rounding))


def test_every_message_repeated_gets_the_very_same_bytes() -> None:
    """Killed after the state was stored and before the answer left, or before the server had it."""
    run = share_server(TEN, shared(TEN))
    run.offer()
    site = run.sites[TEN.ids[0]]
    seen: list[tuple[bytes, bytes | None]] = [(run.collection.offer(), site.sent[-1])]
    for phase in PHASES[1:]:
        before = len(site.sent)
        run.to(phase)
        assert len(site.sent) == before + 1
        seen.append((run.outbox[site.id], None if phase is Phase.DEALS else site.sent[-1]))
        for message, reply in seen:
            state = site.state
            again = site.join(message, local(run.described)) if message == seen[0][0] else site.receive(message)
            assert again == reply
            assert site.state == state
    run.require_exact()


def test_an_update_is_dealt_once() -> None:
    run = share_server(TEN, shared(TEN))
    run.offer()
    run.send()
    site = run.sites[TEN.ids[0]]
    assert site.state.stage is Stage.SETTLED
    assert not any((site.state.seed, site.state.mask_key))  # of no use any more
    update_D = run.updates[site.id]
    for wrong_D in (update_D[:-1], update_D.astype(np.float64), np.full_like(update_D, np.nan)):
        with pytest.raises(InvalidUpdate):
            deal(site, wrong_D)  # type: ignore[arg-type]
    lost_state = site.stored
    lost = deal(site, update_D)
    assert deal(site, update_D + 1) == lost  # and not shares of another polynomial, or of another update
    assert len(site.state.exposures) == 1
    assert not site.state.rounding
    site.stored = lost_state  # killed before the state was stored: nothing has left
    fresh = deal(site, update_D)
    assert fresh != lost
    run.take(fresh)
    assert run.collection.receive(lost or b"") is not None
    run.deal({site.id})
    run.plain[site.id] = np.zeros(0)  # not asked for below
    run.to(Phase.SUMS)
    assert deal(site, update_D) is None
    assert site.refusal is not None
    assert "nothing is to be shared after revealed" in site.refusal.reason


def test_a_site_keeps_no_longer_than_it_needs() -> None:
    run = at(Phase.DEALS)
    states = [run.sites[TEN.ids[0]].state]
    for phase in PHASES[2:]:
        run.to(phase)
        states.append(run.sites[TEN.ids[0]].state)
    dealt, agreed, confirmed, answered, acked, revealed = (state.sharing for state in states)
    assert dealt is not None
    assert dealt.vector
    assert agreed is not None
    assert not agreed.vector
    assert confirmed is not None
    assert not confirmed.deal
    assert states[2].seal_key
    assert not states[3].seal_key
    assert answered is not None
    assert answered.own == answered.own_proof == ERASED
    assert not answered.deals
    assert acked is not None
    assert not acked.shares
    assert acked.summed
    assert revealed is None


@pytest.mark.parametrize("killed_in", PHASES)
def test_a_server_that_stored_messages_and_closes_goes_on_with_the_same_bytes(killed_in: Phase) -> None:
    run = share_server(TEN, shared(TEN))
    lies = PHASES.index(killed_in) >= PHASES.index(Phase.PRODUCTS)
    run.to(Phase.CONFIRMATIONS if lies else killed_in)
    if lies:  # with a liar, so that what is decided at random shows
        run.send_changed({TEN.ids[2]: lambda body: b"\1" + body[1:]})
        run.to(killed_in)
    again = SharingCollection(run.described, TEN.roster, SECRET, run.collection.choose)
    assert again.offer() == run.collection.offer()
    for phase in PHASES[: PHASES.index(killed_in) + 1]:
        for site in reversed(run.sites.values()):
            for message in site.sent:
                if message[0] == phase:
                    if phase is Phase.DEALS:
                        assert len(message) == again.deal_bytes(site.id)
                    assert again.receive(run.lied.get((site.id, phase), message)) is None
        if phase is not killed_in:
            outbox = again.close()
    if killed_in is not Phase.KEYS:
        assert outbox == run.outbox
    assert again.phase is run.collection.phase
    assert again.waiting == run.collection.waiting
    assert again.weights == run.collection.weights
    assert again.came == run.collection.came
    if killed_in is Phase.SUMS:
        assert np.array_equal(add_up_shares(again).sum_D, run.require_exact().sum_D)
        assert TEN.ids[2] not in again.selected
        assert [message[0] for message in run.sites[TEN.ids[0]].sent].count(Kind.SUM) == 1
