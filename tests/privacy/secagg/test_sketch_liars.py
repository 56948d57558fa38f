"""Sites that lie in a session of sketches: named, left out, or the round is lost; nothing false is ever summed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from by_definition import geometry
from foedus.privacy.secagg import sketching
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.prg import Words, stream
from foedus.privacy.secagg.sharing_messages import Box, Deal, Products, SumAnswer, with_boxes
from foedus.privacy.secagg.signing import Kind, sign
from foedus.privacy.secagg.sketch_terms import shift_of
from foedus.privacy.secrets import Secret
from foedus.privacy.sharing.field import P, Stream, add
from foedus.privacy.sharing.sketches import BUCKETS, ROWS, TABLES
from secure_sums import federation
from sketch_attacks import fails, ready, require_estimates
from sketched_sums import SketchServer, sketch_server, sketched

pytestmark = pytest.mark.adversarial

TEN = federation(10)
LIAR, OTHER, THIRD = TEN.ids[3], TEN.ids[7], TEN.ids[8]


def as_steps(run: SketchServer, site: bytes) -> Words:
    """A site's update in whole numbers, rounded as usual."""
    return np.rint(run.updates[site].astype(np.float64) * run.described.scale).astype("<i4").view("<u4")


# 16 and 17: another update than was judged


def test_a_poisoned_update_behind_an_honest_sketch_is_found_out_and_the_round_lost() -> None:
    run = sketch_server(TEN, sketched(TEN))
    honest = as_steps(run, TEN.ids[5])
    poison = (-3 * honest.view("<i4")).view("<u4")
    run.attack({LIAR: poison}, {LIAR: honest})
    run.to(Phase.SUMS)
    assert LIAR in run.collection.selected
    assert fails(run.result, "sketch-mismatch") == ()
    assert run.collection.revealing


def test_the_smallest_change_is_found_out_where_sketches_are_not_rounded() -> None:
    run = sketch_server(TEN, sketched(TEN, scale=1024.0))
    assert shift_of(run.described) == 0
    honest = as_steps(run, TEN.ids[5])
    poison = honest.copy()
    poison[7] += np.uint32(1)
    run.attack({LIAR: poison}, {LIAR: honest})
    run.collection.choose = lambda judged: judged.sites
    run.to(Phase.SUMS)
    fails(run.result, "sketch-mismatch")


def matrix(columns: int, draw: Stream) -> np.ndarray:
    drawn = np.frombuffer(draw(9 * 65_536), np.uint8).reshape(9, 65_536)[:, :columns]
    found = np.zeros((ROWS, columns))
    for table in range(TABLES):
        found[BUCKETS * table + drawn[table].astype(int), range(columns)] = 1 - 2.0 * (drawn[TABLES] >> table & 1)
    return found


@pytest.mark.parametrize("known", [True, False])
def test_a_vector_hidden_from_a_guessed_matrix_is_seen_by_one_drawn_from_the_uploads(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guess, d = Secret(b"guessed in advance: all 32 bytes"), 4000
    if known:
        monkeypatch.setattr(sketching, "stream", lambda _: stream(guess))
    run = sketch_server(TEN, sketched(TEN, num_coordinates=d, clip_norm=200.0, scale=1024.0))
    J = matrix(d, stream(guess))
    honest_D = as_steps(run, TEN.ids[5]).view("<i4").astype(np.float64)
    hidden_D = np.random.default_rng(5).standard_normal(d)
    hidden_D -= J.T @ np.linalg.solve(J @ J.T + 1e-6 * np.eye(ROWS), J @ hidden_D)
    hidden_D *= 3 * np.linalg.norm(honest_D) / np.linalg.norm(hidden_D)
    closest = min(TEN.ids, key=lambda site: float(np.linalg.norm(run.updates[site])))
    poison_D = as_steps(run, closest).view("<i4") + np.rint(hidden_D).astype("<i4")
    run.attack({LIAR: poison_D.view("<u4")})
    run.to(Phase.SUMS)
    assert (LIAR in run.collection.selected) is known
    run.require_exact()  # with the guess right, the attack is not even noticed
    exact = geometry(np.array([run.plain[site].view("<i4") for site in TEN.ids])).squared_PP
    assert np.median(exact[3, :-1]) > 3 * np.median(exact[5, :-1])


# 18: holders that lie about what they hold


def lying(run: SketchServer, by: int) -> Callable[[bytes], bytes]:
    """Every element of an answer, off by some amount."""

    def change(body: bytes) -> bytes:
        elements = np.frombuffer(body, "<u8").astype(np.uint64)
        return add(elements, np.uint64(by)).astype("<u8").tobytes()

    return change


def products_only(run: SketchServer, by: int) -> Callable[[bytes], bytes]:
    """The products, and no test."""
    collection = run.collection
    num_masking = len(set(collection.dealing.mask_dealers) & set(collection.deals))

    def change(body: bytes) -> bytes:
        honest = Products.from_bytes(body, len(collection.deals), num_masking, 0)
        return Products(
            add(honest.products_A, np.uint64(by)), honest.degrees_N, honest.masks_Z, honest.short_S
        ).to_bytes()

    return change


@pytest.mark.parametrize("lie", [lying, products_only])
def test_liars_and_drop_outs_are_named_and_the_distances_are_exact(
    lie: Callable[[SketchServer, int], Callable[[bytes], bytes]],
) -> None:
    run = sketch_server(TEN, sketched(TEN))
    run.to(Phase.AGREEMENTS, {THIRD: Phase.AGREEMENTS})
    run.send_changed({LIAR: lie(run, 5), OTHER: lie(run, P - 77)})
    run.to(Phase.ACKS)
    judged = run.collection.judged
    assert judged is not None
    assert set(judged.refused) == {LIAR, OTHER}
    assert len(judged.sites) == 8
    assert THIRD in judged.sites  # it has dealt; only as a holder it is gone
    require_estimates(run)
    run.to(Phase.SUMS)
    run.require_exact()


@pytest.mark.parametrize("lie", [lying, products_only])
def test_with_one_liar_more_nothing_is_decoded_and_nobody_selected(
    lie: Callable[[SketchServer, int], Callable[[bytes], bytes]],
) -> None:
    run = sketch_server(TEN, sketched(TEN))
    run.to(Phase.AGREEMENTS)
    run.send_changed({site: lie(run, 5 + 7 * place**3) for place, site in enumerate((LIAR, OTHER, THIRD))})
    assert fails(run.collection.close, "undecodable") == ()
    assert run.collection.selected == ()
    assert not run.collection.revealing


def test_holders_that_lie_about_the_sum_are_named_and_the_check_still_holds() -> None:
    run = sketch_server(TEN, sketched(TEN))
    run.to(Phase.ACKS)

    def change(body: bytes) -> bytes:
        answer = SumAnswer.from_bytes(body, ROWS)
        return SumAnswer(answer.unmask, add(answer.sum_L, np.uint64(3))).to_bytes()

    run.send_changed({LIAR: change, OTHER: change})
    assert run.require_exact().liars == tuple(sorted((LIAR, OTHER)))


def test_too_many_that_lie_about_the_sum_leave_nothing() -> None:
    run = sketch_server(TEN, sketched(TEN))
    run.to(Phase.ACKS)

    def change(by: int) -> Callable[[bytes], bytes]:
        def changed(body: bytes) -> bytes:
            answer = SumAnswer.from_bytes(body, ROWS)
            return SumAnswer(answer.unmask, add(answer.sum_L, np.uint64(by))).to_bytes()

        return changed

    run.send_changed({site: change(9 + place**3) for place, site in enumerate((LIAR, OTHER, THIRD))})
    fails(run.result, "undecodable")


# messages that are none


def test_messages_out_of_turn_or_of_the_wrong_shape_are_refused() -> None:
    run = ready(TEN)
    site = run.sites[LIAR]

    def says(kind: Kind, body: bytes, boxes: list[Box] | None = None) -> str:
        message = sign(site.member.key, kind, run.described.sid, body)
        refusal = run.collection.receive(message.to_bytes() if boxes is None else with_boxes(message, boxes))
        assert refusal is not None
        assert refusal.blamed in ((LIAR,), ())
        return refusal.code

    # An acknowledgement of the survivors would be in the list of those of the selection.
    assert says(Kind.ACK, run.collection.masks.view) == "late"
    assert says(Kind.PRODUCTS, b"") == "late"
    others = [other for other in TEN.ids if other != LIAR]
    digests = {other: bytes(32) for other in others}
    assert says(Kind.DEAL, Deal(bytes(32), digests).to_bytes(), []) == "bad-list"
    assert says(Kind.DEAL, Deal(run.collection.view, {}).to_bytes(), []) == "bad-list"
    assert says(Kind.DEAL, Deal(run.collection.view, digests).to_bytes(), []) == "bad-message"
    short = [Box(other, b"short") for other in others]
    deal = Deal(run.collection.view, {box.other: box.digest for box in short})
    assert says(Kind.DEAL, deal.to_bytes(), short) == "bad-message"
    assert says(Kind.DEAL, deal.to_bytes()) == "bad-message"  # no list of boxes behind it
    run.deal()
    run.to(Phase.AGREEMENTS, {LIAR: Phase.AGREEMENTS})
    assert says(Kind.AGREE, Deal(bytes(32), {}).to_bytes(), []) == "bad-list"
    assert says(Kind.AGREE, deal.to_bytes(), short) == "bad-list"
    assert run.collection.receive(run.sites[OTHER].sent[-1]) is None  # once more is no harm
    assert run.collection.receive(bytes(3_000_000)) is not None


def test_an_answer_that_holds_no_field_elements_is_refused() -> None:
    run = sketch_server(TEN, sketched(TEN))
    run.to(Phase.AGREEMENTS)
    run.send_changed({LIAR: lambda body: b"\xff" * len(body)})
    assert [refusal.code for refusal in run.refusals] == ["bad-message"]
    assert run.collection.waiting == {LIAR}
    run.to(Phase.SUMS)
    run.require_exact()
