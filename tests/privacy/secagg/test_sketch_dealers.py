"""Sites that deal something else than shares of one vector, or masks that do not add up: named, or left out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from foedus.privacy.secagg import judging
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.dealing import Dealing
from foedus.privacy.secagg.descriptor import next_attempt
from foedus.privacy.secagg.sharing_messages import Box, Deal, split_boxes, with_boxes
from foedus.privacy.secagg.signing import Kind, sign
from foedus.privacy.secagg.sketch_terms import shift_of
from foedus.privacy.sharing.dealers import Judgement
from foedus.privacy.sharing.field import Elements, P, add
from foedus.privacy.sharing.sketches import ROWS, unit_of
from secure_sums import federation
from sketch_attacks import dealing_badly, estimates, fails, masking_and_not, ready, require_estimates
from sketched_sums import SketchServer, sketch, sketch_server

pytestmark = pytest.mark.adversarial

TEN = federation(10)


def too_high(column: int, degree: int) -> Callable[[Dealing, Elements], None]:
    def tamper(dealing: Dealing, rows: Elements) -> None:
        points = [pow(point, degree, P) for point in dealing.packing.holder_points()]
        rows[:, column] = add(rows[:, column], np.array(points, np.uint64))

    return tamper


def test_a_dealer_of_shares_of_too_high_a_degree_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ready(TEN)
    _, liar = masking_and_not(run)
    dealing_badly(monkeypatch, [liar], too_high(5, run.described.privacy_threshold + 1))
    run.deal()
    run.to(Phase.SUMS)
    judged = run.collection.judged
    assert judged is not None
    assert set(judged.refused) == {liar}
    require_estimates(run)
    run.require_exact()


def test_masks_that_do_not_add_up_end_the_attempt_and_the_next_goes_on_without_their_dealer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = ready(TEN)
    liar, _ = masking_and_not(run)
    dealing_badly(monkeypatch, [liar], too_high(ROWS + 1 + 5, 0))  # a constant: of a fine degree, and no zero
    run.deal()
    run.to(Phase.PRODUCTS)
    blamed = fails(run.collection.close, "bad-dealer")
    assert blamed == (liar,)
    assert not run.collection.revealing
    monkeypatch.undo()
    again = next_attempt(run.described, without=blamed)
    assert (again.byzantine, again.wrong_holders) == (1, 1)
    second = sketch_server(TEN, again, sites=[site for site in run.sites.values() if site.id != liar])
    second.run()
    assert liar not in second.require_exact().survivors


def test_without_the_test_of_masks_a_liar_brings_together_whom_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control arm: what is added to a mask is added to a product, and nobody is the wiser."""
    run = ready(TEN)
    liar, _ = masking_and_not(run)
    offset = 1 << 32

    def tamper(dealing: Dealing, rows: Elements) -> None:
        rows[:, ROWS + 1 + 5] = add(rows[:, ROWS + 1 + 5], np.uint64(offset))  # the mask of the sites 0 and 5

    dealing_badly(monkeypatch, [liar], tamper)
    monkeypatch.setattr(judging, "judge_masks", lambda *_: Judgement((), ()))
    run.deal()
    run.to(Phase.ACKS)
    judged = run.collection.judged
    assert judged is not None
    assert not judged.refused
    expected_PP = estimates(run)
    unit = unit_of(shift_of(run.described))
    assert judged.squared_PP[0, 5] == pytest.approx(expected_PP[0, 5] - 2 * offset * unit)
    assert judged.squared_PP[0, 6] == pytest.approx(expected_PP[0, 6])


def to_one_holder(place: int, column: int) -> Callable[[Dealing, Elements], None]:
    def tamper(dealing: Dealing, rows: Elements) -> None:
        rows[place, column] = add(rows[place : place + 1, column], np.uint64(1))[0]

    return tamper


def test_a_dealer_and_a_holder_that_contradict_each_other_are_both_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ready(TEN)
    _, liar = masking_and_not(run)
    victim = next(site for site in reversed(TEN.ids) if site != liar)
    dealing_badly(monkeypatch, [liar], to_one_holder(TEN.ids.index(victim), 9))
    run.deal()
    run.to(Phase.SUMS)
    judged = run.collection.judged
    assert judged is not None
    assert set(judged.refused) == {liar, victim}
    assert all("one of them lies" in reason for reason in judged.refused.values())
    require_estimates(run)
    run.require_exact()


def test_a_box_that_does_not_open_is_a_contradiction_too() -> None:
    run = ready(TEN)
    masking, liar = masking_and_not(run)
    victim = next(site for site in reversed(TEN.ids) if site not in (liar, masking))
    run.deal({liar})
    seals_badly(run, liar, victim)
    run.to(Phase.SUMS)
    judged = run.collection.judged
    assert judged is not None
    assert set(judged.refused) == {liar, victim}
    run.require_exact()


def seals_badly(run: SketchServer, liar: bytes, victim: bytes) -> None:
    site = run.sites[liar]
    reply = sketch(site, run.updates[liar])
    assert reply is not None
    honest, boxes = split_boxes(reply)
    spoilt = [Box(box.other, bytes(len(box.ciphertext))) if box.other == victim else box for box in boxes]
    deal = Deal(run.collection.view, {box.other: box.digest for box in spoilt})
    signed = sign(site.member.key, Kind.DEAL, honest.sid, deal.to_bytes())
    site.stored = type(site.stored)(site.stored.reveal().replace(reply.hex(), with_boxes(signed, spoilt).hex()))
    run.take(with_boxes(signed, spoilt))


def test_masks_that_two_holders_were_dealt_otherwise_start_the_round_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ready(TEN)
    liar, _ = masking_and_not(run)
    victims = [place for place, site in enumerate(TEN.ids) if site != liar][:2]

    def tamper(dealing: Dealing, rows: Elements) -> None:
        for place in victims:
            to_one_holder(place, ROWS + 5)(dealing, rows)

    dealing_badly(monkeypatch, [liar], tamper)
    run.deal()
    run.to(Phase.PRODUCTS)
    blamed = fails(run.collection.close, "bad-dealer")
    assert liar in blamed
    assert len(blamed) == 2


def test_masks_that_one_holder_was_dealt_otherwise_cost_both(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ready(TEN)
    liar, _ = masking_and_not(run)
    place = next(place for place, site in enumerate(TEN.ids) if site != liar)
    dealing_badly(monkeypatch, [liar], to_one_holder(place, ROWS + 5))
    run.deal()
    run.to(Phase.SUMS)
    judged = run.collection.judged
    assert judged is not None
    assert set(judged.refused) == {liar, TEN.ids[place]}
    require_estimates(run)
    run.require_exact()
