"""A server that lies in a session of sketches: nothing is answered or opened that is not agreed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg import site as site_module
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.descriptor import SessionDescriptor
from foedus.privacy.secagg.messages import Which, frame, signed_list
from foedus.privacy.secagg.sharing_messages import (
    Box,
    Boxes,
    Deal,
    Selection,
    SumAnswer,
    agreement_on,
    split_boxes,
    view_of_selection,
)
from foedus.privacy.secagg.signing import Kind, Signed, sign
from foedus.privacy.secagg.sketch_terms import shift_of
from foedus.privacy.secagg.sketching import sketch_of
from foedus.privacy.secagg.state import Stage
from foedus.privacy.sharing.field import to_integers
from foedus.privacy.sharing.packing import at_data_points
from foedus.privacy.sharing.sketches import ROWS
from secure_sums import Site, federation, local
from sketched_sums import SketchServer, sketch_server, sketched

pytestmark = pytest.mark.adversarial

TEN = federation(10)
COLLUDERS, HONEST = TEN.ids[:2], TEN.ids[2:]


def at(phase: Phase) -> SketchServer:
    run = sketch_server(TEN, sketched(TEN))
    run.to(phase)
    return run


def requires(site: Site, message: bytes, code: str) -> None:
    """The message is refused under that code, the session over, and no secret left."""
    before = len(site.sent)
    assert site.receive(message) is None
    assert site.refusal is not None
    assert site.refusal.code == code, site.refusal
    assert len(site.sent) == before
    state = site.state
    assert state.stage is Stage.ENDED
    assert not any((state.held, state.seal_key, state.mask_key, state.seed, state.rounding, state.sharing))


def selecting(run: SketchServer, weights: Mapping[bytes, int]) -> bytes:
    return frame(Kind.SELECT, run.described.sid, Selection(weights).to_bytes())


def signed_by(run: SketchServer, kind: Kind, sites: Sequence[bytes], body: bytes) -> list[Signed]:
    """Colluders would sign anything."""
    return [sign(run.sites[site].member.key, kind, run.described.sid, body) for site in sorted(sites)]


# 21: selections that do not hide


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        ([1] * 4, "selection-too-small"),
        ([1, 0, 0, 0, 0, 0], "selection-too-small"),
        ([1024, 1, 1, 1, 1, 1], "selection-too-small"),
        ([0] * 6, "selection-too-small"),
        ([], "selection-too-small"),
        ([2**20] * 6, "selection-too-small"),
        ([2] * 6, "bad-list"),
        ([3, 2, 2, 2, 2, 2], "bad-list"),
    ],
)
def test_a_selection_that_does_not_hide_an_update_is_refused(weights: list[int], code: str) -> None:
    run = at(Phase.PRODUCTS)
    assert run.described.needed_survivors == 5
    message = selecting(run, dict(zip(HONEST, weights, strict=False)))
    requires(run.sites[HONEST[0]], message, code)


def test_a_selection_of_a_site_that_has_dealt_nothing_is_refused() -> None:
    run = sketch_server(TEN, sketched(TEN))
    run.to(Phase.PRODUCTS, {TEN.ids[9]: Phase.DEALS})
    requires(run.sites[HONEST[0]], selecting(run, dict.fromkeys(TEN.ids[4:], 1)), "bad-list")


def test_the_server_itself_refuses_what_the_sites_would() -> None:
    run = at(Phase.PRODUCTS)
    run.collection.choose = lambda judged: judged.sites[:4]
    with pytest.raises(SecureSumFailed, match="4 sites does not hide an update as 5 alike do") as caught:
        run.collection.close()
    assert caught.value.reason == "selection-too-small"
    run.collection.choose = lambda _: [bytes(16)] * 6
    with pytest.raises(ValueError, match="only choose from the sites judged"):
        run.collection.close()
    run.collection.choose = lambda judged: judged.sites[:5]
    run.to(Phase.SUMS)
    run.require_exact()


# 22: two selections


def test_two_selections_shown_to_two_halves_are_opened_by_neither() -> None:
    run = at(Phase.PRODUCTS)
    selections = (Selection(dict.fromkeys(TEN.ids[:8], 1)), Selection(dict.fromkeys(TEN.ids[:7], 1)))
    agreement = run.sites[HONEST[0]].state.sharing.challenge  # type: ignore[union-attr]
    halves = (HONEST[:4], HONEST[4:])
    for selection, half in zip(selections, halves, strict=True):
        view = view_of_selection(run.described.sid, agreement, selection)
        for site in half:
            assert run.sites[site].receive(selecting(run, selection.weights)) is not None
        acks = [Signed.from_bytes(run.sites[site].sent[-1]) for site in half]
        assert {ack.body for ack in acks} == {view}
        everything = sorted([*acks, *signed_by(run, Kind.ACK, COLLUDERS, view)], key=lambda ack: ack.sender)
        assert len(everything) < run.described.needed_acks
        message = frame(Kind.ACK_LIST, run.described.sid, signed_list(everything))
        for site in half:
            requires(run.sites[site], message, "too-few")


def test_a_second_selection_is_refused_and_the_first_not_opened_either() -> None:
    run = at(Phase.ACKS)
    requires(run.sites[HONEST[0]], selecting(run, dict.fromkeys(TEN.ids[:7], 1)), "bad-message")
    acks = [run.collection.masks.acks[site] for site in TEN.ids]
    message = frame(Kind.ACK_LIST, run.described.sid, signed_list(acks))
    assert run.sites[HONEST[0]].receive(message) is None
    assert run.sites[HONEST[1]].receive(message) is not None


def test_of_every_site_one_secret_is_opened_and_whose_seed_the_selection_says() -> None:
    run = at(Phase.SUMS)
    selected = set(run.collection.selected)
    assert 5 <= len(selected) < 10
    for site in run.sites.values():
        shares = SumAnswer.from_bytes(Signed.from_bytes(site.sent[-1]).body, ROWS).unmask.shares
        assert [item.owner for item in shares] == list(TEN.ids)
        assert {item.owner for item in shares if item.which is Which.SEED} == selected
        assert site.receive(selecting(run, dict.fromkeys(TEN.ids[:7], 1))) is None
        assert site.refusal is not None
        assert site.refusal.code == "already-revealed"


# lists of deals


def deals_message(run: SketchServer, sites: Sequence[bytes]) -> bytes:
    deals = [run.collection.deals[site] for site in sorted(sites)]
    return frame(Kind.DEALS, run.described.sid, signed_list(deals))


def shown_two_lists(run: SketchServer) -> list[bytes | None]:
    """Each half of the honest sites is shown the deals without one mask dealer; the colluders agree to everything."""
    masking = [site for site in run.collection.dealing.mask_dealers if site in HONEST]
    left_out = (masking[0], masking[1])
    rest = [site for site in HONEST if site not in left_out]
    answers: list[bytes | None] = []
    for gone, half in zip(left_out, (rest[:3], rest[3:]), strict=True):
        dealers = [site for site in TEN.ids if site != gone]
        deals = [run.collection.deals[site] for site in dealers]
        agreement = agreement_on(run.described.sid, run.collection.view, deals)
        for site in half:
            assert run.sites[site].receive(deals_message(run, dealers)) is not None
        agreements = [split_boxes(run.sites[site].sent[-1])[0] for site in half]
        agreements = sorted(
            [*agreements, *signed_by(run, Kind.AGREE, COLLUDERS, Deal(agreement, {}).to_bytes())],
            key=lambda one: one.sender,
        )
        for site in half:
            boxes = tuple(box_for(run, dealer, site) for dealer in dealers if dealer != site)
            message = frame(Kind.BOXES, run.described.sid, Boxes(tuple(agreements), boxes).to_bytes())
            answers.append(run.sites[site].receive(message))
    return answers


def box_for(run: SketchServer, dealer: bytes, holder: bytes) -> Box:
    deal = next(message for message in run.sites[dealer].sent if message[0] == Kind.DEAL)
    _, boxes = split_boxes(deal)
    return Box(dealer, next(box.ciphertext for box in boxes if box.other == holder))


def test_two_lists_of_deals_are_answered_by_nobody() -> None:
    """Or else products with one set of masks and with another could be told from those with both."""
    assert set(shown_two_lists(at(Phase.DEALS))) == {None}


def test_without_the_agreement_both_would_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control arm."""
    run = at(Phase.DEALS)
    monkeypatch.setattr(SessionDescriptor, "needed_acks", property(lambda _: 5))
    assert None not in shown_two_lists(run)


def test_a_list_of_deals_without_enough_masks_is_refused() -> None:
    run = at(Phase.DEALS)
    masking = run.collection.dealing.mask_dealers
    without = [site for site in TEN.ids if site not in masking[:2]]
    site = next(site for site in without if site in HONEST)
    requires(run.sites[site], deals_message(run, without), "too-few")


def test_a_list_of_deals_without_its_own_or_with_too_few_is_refused() -> None:
    run = at(Phase.DEALS)
    requires(run.sites[HONEST[0]], deals_message(run, [site for site in TEN.ids if site != HONEST[0]]), "late")
    requires(run.sites[HONEST[1]], deals_message(run, TEN.ids[:6]), "too-few")


def test_a_deal_of_another_view_is_refused() -> None:
    run = at(Phase.DEALS)
    deals = dict(run.collection.deals)
    (deals[COLLUDERS[0]],) = signed_by(run, Kind.DEAL, COLLUDERS[:1], bytes(32) + deals[COLLUDERS[0]].body[32:])
    message = frame(Kind.DEALS, run.described.sid, signed_list([deals[site] for site in sorted(deals)]))
    requires(run.sites[HONEST[0]], message, "bad-list")


@pytest.mark.parametrize("what", ["spoilt", "of another holder", "missing"])
def test_a_box_that_is_not_the_one_dealt_is_refused(what: str) -> None:
    """A mask that does not reach its holder would be missing in its answer, and the products bare."""
    run = at(Phase.AGREEMENTS)
    honest = run.collection.close()[HONEST[0]]
    received = Boxes.from_bytes(honest[33:], Kind.AGREE, run.described.sid)
    boxes = list(received.boxes)
    match what:
        case "spoilt":
            boxes[3] = Box(boxes[3].other, bytes(len(boxes[3].ciphertext)))
        case "of another holder":
            boxes[3] = box_for(run, boxes[3].other, HONEST[1])
        case _:
            del boxes[3]
    message = frame(Kind.BOXES, run.described.sid, Boxes(received.agreements, tuple(boxes)).to_bytes())
    requires(run.sites[HONEST[0]], message, "bad-list")


# attempts


def test_a_third_sketch_of_one_update_is_refused() -> None:
    run = at(Phase.PRODUCTS)
    for attempt, joins in ((2, True), (3, False)):
        again = replace(run.described, attempt=attempt)
        second = sketch_server(TEN, again, sites=list(run.sites.values()))
        if joins:
            second.to(Phase.PRODUCTS)
            continue
        site = run.sites[HONEST[0]]
        assert site.join(second.collection.offer(), local(again)) is None
        assert site.refusal is not None
        assert site.refusal.code == "policy"
        assert "another would show more" in site.refusal.reason


@pytest.mark.parametrize("forgetful", [False, True])
def test_two_selections_of_two_attempts_are_not_both_summed_unless_sites_forget(
    forgetful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One honest site stays in the first, and with the colluders opens its sum of sketches; the others go on."""
    if forgetful:
        monkeypatch.setattr(site_module, "require_one_opening", lambda *_: None)
    staying, victim = HONEST[0], HONEST[5]
    others = tuple(site for site in TEN.ids if site != staying)
    first = sketch_server(TEN, sketched(TEN), choose=lambda _: [site for site in others if site != victim])
    first.to(Phase.ACKS)
    message, dealing, told = first.collection.close()[staying], first.collection.dealing, []
    for site in sorted((staying, *COLLUDERS)):
        before = first.sites[site].stored
        told.append(Signed.from_bytes(first.sites[site].receive(message) or b"").body)
        if site in COLLUDERS:  # they take part in both
            first.sites[site].stored = before
    described = replace(first.described, attempt=2, participants=others, wrong_holders=1, byzantine=1)
    described = replace(described, threshold=described.share_threshold(len(others)))
    second = sketch_server(
        TEN, described, choose=lambda _: others, sites=list(first.sites.values()), updates=first.updates
    )
    if not forgetful:
        second.offer()
        requires(second.sites[victim], second.collection.close()[victim], "policy")
        return
    second.run()
    said_HS = np.stack([SumAnswer.from_bytes(body, ROWS).sum_L for body in told])
    places = dealing.places(sorted((staying, *COLLUDERS)))
    opened_S = to_integers(at_data_points(dealing.packing, places, said_HS, dealing.packing.degree)[0])
    summed_D = second.result().sum_D.astype("<i4").view("<u4")
    sketch_S, own_S = (
        sketch_of(first.described, first.collection.view, words_D) for words_D in (summed_D, first.plain[victim])
    )
    left_S = sketch_S - (opened_S << shift_of(first.described))
    assert np.corrcoef(left_S, own_S)[0, 1] > 0.99  # the victim's own sketch, 2048 equations about it


def test_after_the_sum_there_is_no_other_attempt() -> None:
    run = at(Phase.SUMS)
    again = replace(run.described, attempt=2)
    site = run.sites[HONEST[0]]
    assert site.join(sketch_server(TEN, again).collection.offer(), local(again)) is None
    assert site.refusal is not None
    assert site.refusal.code == "already-revealed"
