"""Sketches that are proved short: who proves falsely is left out, and no two lists of proofs are answered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from foedus.privacy.secagg import judging, sketching
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.dealing import Dealing, proved
from foedus.privacy.secagg.descriptor import SessionDescriptor
from foedus.privacy.secagg.messages import frame, signed_list
from foedus.privacy.secagg.sharing_messages import Box, Boxes, agreement_on_proofs, split_boxes
from foedus.privacy.secagg.sharing_opening import open_selected
from foedus.privacy.secagg.signing import Kind, Signed, sign
from foedus.privacy.secagg.state import Stage
from foedus.privacy.sharing.field import Elements, Integers, P, Stream, add
from foedus.privacy.sharing.sketches import ROWS
from secure_sums import federation
from sketch_attacks import dealing_badly, fails, masking_and_not, ready
from sketched_sums import SketchServer

pytestmark = pytest.mark.adversarial

TEN = federation(10)
Tamper = Callable[[Dealing, Elements], None]


def start(*, strict: bool = True) -> tuple[SketchServer, bytes]:
    """A session whose survivors are settled, and one of them that deals no masks."""
    run = ready(TEN, strict=strict)
    return run, masking_and_not(run)[1]


def proving_badly(monkeypatch: pytest.MonkeyPatch, run: SketchServer, liar: bytes, tamper: Tamper) -> None:
    sites = iter(run.collection.survivors)

    def proves(dealing: Dealing, vector_L: Integers, agreement: bytes, draw: Stream) -> Elements:
        rows = proved(dealing, vector_L, agreement, draw)
        if next(sites) == liar:
            tamper(dealing, rows)
        return rows

    monkeypatch.setattr(sketching, "proved", proves)


def refused(run: SketchServer) -> set[bytes]:
    assert run.collection.judged is not None
    return set(run.collection.judged.refused)


def add_constant(dealing: Dealing, rows: Elements) -> None:
    """A bit that is none; or a projection with other bits."""
    rows[:, 17] = add(rows[:, 17], np.uint64(1))


def add_to_one(dealing: Dealing, rows: Elements) -> None:
    rows[9, 17] = add(rows[9:, 17], np.uint64(1))[0]


def wrap_around(dealing: Dealing, rows: Elements) -> None:
    """A value of the size of p in the sketch."""
    rows[:, 5] = add(rows[:, 5], np.uint64(P // 3))


def test_bits_that_are_none_are_their_dealers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    run, liar = start()
    run.deal()
    proving_badly(monkeypatch, run, liar, add_constant)
    run.to(Phase.SUMS)
    assert refused(run) == {liar}
    run.require_exact()


def test_a_proof_that_one_holder_got_otherwise_is_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = start()
    masking = run.collection.dealing.mask_dealers
    liar = next(site for site in TEN.ids[:9] if site not in masking)
    run.deal()
    proving_badly(monkeypatch, run, liar, add_to_one)
    run.to(Phase.SUMS)
    assert refused(run) == {liar, TEN.ids[9]}
    run.require_exact()


@pytest.mark.parametrize("strict", [True, False])
def test_a_sketch_that_wraps_around_has_no_proof_and_is_implausible_without(
    strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, liar = start(strict=strict)
    dealing_badly(monkeypatch, [liar], wrap_around)
    run.deal()
    run.to(Phase.ACKS)
    assert refused(run) == {liar}
    assert run.collection.judged is not None
    reason = run.collection.judged.refused[liar]
    assert ("contradicts all others" in reason) is strict
    assert ("none that sketches have" in reason) is not strict
    run.to(Phase.SUMS)
    run.require_exact()


def test_were_it_plausible_the_sum_of_sketches_would_still_be_none_of_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, liar = start(strict=False)
    dealing_badly(monkeypatch, [liar], wrap_around)
    monkeypatch.setattr(judging, "implausible", lambda *_: ())
    monkeypatch.setattr(judging, "too_long", lambda *_: ())
    run.collection.choose = lambda judged: judged.sites
    run.deal()
    run.to(Phase.SUMS)
    assert liar in run.collection.selected
    open_selected(run.collection)
    fails(run.result, "sketch-mismatch")


def test_a_site_whose_sketch_cannot_be_proved_short_leaves() -> None:
    run, liar = start()
    run.deal()
    site = run.sites[liar]
    state = site.state
    assert state.sharing is not None
    table = site.stored.reveal()
    vector = state.sharing.vector.reveal_bytes()
    assert len(vector) == 8 * ROWS
    site.stored = type(site.stored)(table.replace(vector.hex(), (b"\0\0\0\0\0\x01\0\0" * ROWS).hex()))
    run.to(Phase.AGREEMENTS)
    assert site.refusal is not None
    assert site.refusal.code == "bad-dealer"
    assert site.state.stage is Stage.ENDED
    run.to(Phase.SUMS)
    run.require_exact()


# lists of proofs


def shown_two_lists(run: SketchServer) -> list[bytes | None]:
    """Each half of the sites is shown the proofs without one site's; two colluders confirm everything."""
    sid, agreement = run.described.sid, agreement_of(run)
    colluders, honest, left_out = TEN.ids[:2], TEN.ids[2:8], TEN.ids[8:]
    proofs = {site: split_boxes(last(run, site, Kind.AGREE))[0] for site in TEN.ids}
    answers: list[bytes | None] = []
    for gone, half in zip(left_out, (honest[:3], honest[3:]), strict=True):
        shown = [proofs[site] for site in TEN.ids if site != gone]
        challenge = agreement_on_proofs(sid, agreement, shown)
        for site in half:
            assert run.sites[site].receive(frame(Kind.PROOFS, sid, signed_list(shown))) is not None
        confirmed = [Signed.from_bytes(last(run, site, Kind.CONFIRM)) for site in half]
        confirmed += [sign(run.sites[site].member.key, Kind.CONFIRM, sid, challenge) for site in colluders]
        confirmed.sort(key=lambda message: message.sender)
        for site in half:
            dealers = [dealer for dealer in TEN.ids if dealer not in (gone, site)]
            boxes, proved_boxes = (
                tuple(box_for(run, dealer, site, kind) for dealer in dealers) for kind in (Kind.DEAL, Kind.AGREE)
            )
            body = Boxes(tuple(confirmed), boxes, proved_boxes).to_bytes()
            answers.append(run.sites[site].receive(frame(Kind.BOXES, sid, body)))
    return answers


def agreement_of(run: SketchServer) -> bytes:
    sharing = run.sites[TEN.ids[0]].state.sharing
    assert sharing is not None
    return sharing.agreement


def last(run: SketchServer, site: bytes, kind: Kind) -> bytes:
    return next(message for message in reversed(run.sites[site].sent) if message[0] == kind)


def box_for(run: SketchServer, dealer: bytes, holder: bytes, kind: Kind) -> Box:
    _, boxes = split_boxes(last(run, dealer, kind))
    return Box(dealer, next(box.ciphertext for box in boxes if box.other == holder))


@pytest.mark.parametrize("agreed", [True, False])
def test_two_lists_of_proofs_are_answered_by_nobody_unless_nothing_need_be_agreed_on(
    agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = start()
    run.deal()
    run.to(Phase.AGREEMENTS)
    if not agreed:
        monkeypatch.setattr(SessionDescriptor, "needed_acks", property(lambda _: 5))
    answers = shown_two_lists(run)
    assert len(answers) == 6
    assert [answer is None for answer in answers] == [agreed] * 6


def test_products_are_not_answered_before_the_proofs_are_confirmed() -> None:
    run, _ = start()
    run.deal()
    run.to(Phase.AGREEMENTS)
    boxes = tuple(box_for(run, dealer, TEN.ids[0], Kind.DEAL) for dealer in TEN.ids[1:])
    site = run.sites[TEN.ids[0]]
    assert site.receive(frame(Kind.BOXES, run.described.sid, Boxes((), boxes).to_bytes())) is None
    assert site.refusal is not None
    assert site.refusal.code == "bad-message"
    assert "no boxes message is expected after agreed" in site.refusal.reason
