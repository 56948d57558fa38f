"""Sketches over restarts: killed between any two phases, either side goes on with the very same bytes."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from foedus.errors import InvalidUpdate
from foedus.privacy.secagg.codes import AbortCode, Refusal
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.sharing_collect import SharingCollection
from foedus.privacy.secagg.sharing_opening import add_up_selected, open_selected
from foedus.privacy.secagg.signing import Kind
from foedus.privacy.secagg.state import ERASED, Stage
from foedus.privacy.secagg.stored import restored, stored
from secure_sums import federation, local
from sketched_sums import PHASES, PROVED_PHASES, SECRET, SketchServer, sketch, sketch_server, sketched

TEN = federation(10)
BECAUSE = Refusal(AbortCode.POLICY, "because", (b"a" * 16,))


EVERY_PHASE = [(phase, False) for phase in PHASES] + [(phase, True) for phase in PROVED_PHASES[3:]]


def at(phase: Phase, *, strict: bool = False) -> SketchServer:
    run = sketch_server(TEN, sketched(TEN, strict=strict))
    run.to(phase)
    return run


@pytest.mark.parametrize(("phase", "strict"), EVERY_PHASE)
def test_a_state_is_read_as_it_was_stored_and_ends_without_a_secret(phase: Phase, strict: bool) -> None:
    for site in at(phase, strict=strict).sites.values():
        state = site.state
        assert restored(stored(state)) == state
        ended = restored(stored(state.ended(BECAUSE)))
        assert ended.stage is Stage.ENDED
        assert ended.sharing is None
        assert state.remembered().sharing is None
        assert not any((ended.held, ended.seal_key, ended.mask_key, ended.seed, ended.rounding))


@pytest.mark.parametrize("strict", [False, True])
def test_every_message_repeated_gets_the_very_same_bytes(strict: bool) -> None:
    """Killed after the state was stored and before the answer left, or before the server had it."""
    run = sketch_server(TEN, sketched(TEN, strict=strict))
    run.offer()
    site = run.sites[TEN.ids[0]]
    seen: list[tuple[bytes, bytes | None]] = [(run.collection.offer(), site.sent[-1])]
    for phase in (PROVED_PHASES if strict else PHASES)[1:]:
        before = len(site.sent)
        if phase is Phase.MASKED:
            run.send()
            seen.append((run.outbox[site.id], None))
            run.mask()
        elif phase is Phase.DEALS:
            run.send()
            seen.append((run.outbox[site.id], None))
            run.deal()
        else:
            run.to(phase)
            seen.append((run.outbox[site.id], site.sent[-1]))
            assert len(site.sent) == before + 1
        for message, reply in seen:
            state = site.state
            again = site.join(message, local(run.described)) if message == seen[0][0] else site.receive(message)
            assert again == reply
            assert site.state == state
    run.require_exact()


def test_a_sketch_is_dealt_once_and_of_the_update_that_was_masked() -> None:
    run = at(Phase.MASKED)
    run.send()
    site = run.sites[TEN.ids[0]]
    assert site.state.stage is Stage.SETTLED
    assert not any((site.state.seed, site.state.mask_key))  # of no use any more
    update_D = run.updates[site.id]
    other_D = update_D.copy()
    other_D[0] += 1
    with pytest.raises(InvalidUpdate, match="not the one that was masked"):
        sketch(site, other_D)
    dealt = sketch(site, update_D)
    assert dealt is not None
    assert sketch(site, update_D) == dealt  # and not shares of another polynomial
    assert sketch(site, other_D) == dealt
    state = site.state
    assert not state.rounding
    assert state.sharing is not None
    assert not state.sharing.update_digest
    run.take(dealt)
    run.deal({site.id})
    run.to(Phase.SUMS)
    run.require_exact()
    assert sketch(site, update_D) is None
    assert site.refusal is not None
    assert "nothing is to be sketched after revealed" in site.refusal.reason


def test_a_site_keeps_no_longer_than_it_needs() -> None:
    run = at(Phase.DEALS)
    states = [run.sites[TEN.ids[0]].state]
    for phase in PHASES[4:]:
        run.to(phase)
        states.append(run.sites[TEN.ids[0]].state)
    dealt, agreed, answered, acked, revealed = states
    assert dealt.seal_key
    assert agreed.sharing is not None
    assert agreed.sharing.deals
    assert not answered.seal_key
    assert answered.sharing is not None
    assert answered.sharing.own == ERASED
    assert not answered.sharing.deals
    assert acked.sharing is not None
    assert not acked.sharing.shares
    assert acked.sharing.summed
    assert revealed.sharing is None
    assert not revealed.held


@pytest.mark.parametrize(("killed_in", "strict"), EVERY_PHASE)
def test_a_server_that_stored_messages_and_closes_goes_on_with_the_same_bytes(killed_in: Phase, strict: bool) -> None:
    run = sketch_server(TEN, sketched(TEN, strict=strict))
    phases = PROVED_PHASES if strict else PHASES
    last = phases[phases.index(Phase.PRODUCTS) - 1]
    run.to(last if killed_in in PHASES[5:] else killed_in)
    if killed_in in PHASES[5:]:  # with a liar, so that what is decided at random shows
        run.send_changed({TEN.ids[2]: lambda body: b"\1" + body[1:]})
        run.to(killed_in)
    again = SharingCollection(run.described, TEN.roster, SECRET, run.collection.choose)
    assert again.offer() == run.collection.offer()
    for phase in phases[: phases.index(killed_in) + 1]:
        for site in reversed(run.sites.values()):
            for message in site.sent:
                if message[0] == phase:
                    accepted = run.lied.get((site.id, phase), message)
                    row = run.rows.get(site.id)
                    digest = hashlib.sha256(row.data).digest() if row is not None else None
                    size = row.nbytes if row is not None else 0
                    assert again.receive(accepted, words_digest=digest, num_bytes=size) is None
        if phase is not killed_in:
            outbox = again.close()
    if killed_in is not Phase.KEYS:
        assert outbox == run.outbox
    assert again.phase is run.collection.phase
    assert again.waiting == run.collection.waiting
    assert again.selected == run.collection.selected
    if killed_in is Phase.SUMS:
        rows = [(site, run.rows[site]) for site in again.selected]
        found = add_up_selected(again, open_selected(again), rows)
        assert np.array_equal(found.sum_D, run.require_exact().sum_D)
        assert TEN.ids[2] not in again.selected


def test_an_answer_of_a_site_that_was_killed_before_it_stored_anything_is_the_first() -> None:
    """Killed before the state was stored, nothing has left; the shares are drawn afresh, and only those are dealt."""
    run = at(Phase.MASKED)
    run.send()
    site = run.sites[TEN.ids[0]]
    before = site.stored
    lost = sketch(site, run.updates[site.id])
    site.stored = before
    fresh = sketch(site, run.updates[site.id])
    assert lost is not None
    assert fresh is not None
    assert lost != fresh
    run.take(fresh)
    assert run.collection.receive(lost) is not None
    run.deal({site.id})
    run.to(Phase.SUMS)
    run.require_exact()
    assert [message[0] for message in site.sent].count(Kind.DEAL) == 2
