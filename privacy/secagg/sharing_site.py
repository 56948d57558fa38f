"""A site's answers in a session of sketches, from the survivors on, and in one of shares.

Every list is agreed on before anything is answered that depends on it: the survivors by the deals that are about them,
the deals by agreements, the selection by acknowledgements. Holders that answered about different lists would together
tell a server more than products: each list gives it another equation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ...errors import InvalidUpdate, SecureSumFailed
from ..secrets import Secret
from ..sharing.field import ELEMENT_BYTES, Elements, from_bytes, to_bytes
from .agreement import require_agreement, require_one_opening, shares_given, with_keys, with_survivors
from .checks import require_enough, require_hidden, require_signed, view_digest
from .codes import AbortCode, abort
from .dealing import dealing_of, opened, products, shares_of, sums
from .descriptor import Mode
from .keys import agree, loaded
from .member import Member
from .messages import Keys, Unmask, read_signed_list
from .share_terms import proof_elements
from .sharing_messages import (
    Box,
    Boxes,
    Deal,
    Selection,
    SumAnswer,
    agreement_on,
    agreement_on_proofs,
    digests_of,
    view_of_selection,
    with_boxes,
)
from .signing import Kind, Signed, sign
from .sketching import prove_short, unboxed
from .state import ERASED, Answers, Exposure, Sharing, SiteState, Stage


def _settle(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:  # noqa: ARG001
    """Survivors -> nothing yet: the sketch is made of the update, which is not at hand (``sketching``)."""
    settled = with_survivors(state, body)
    dealing_of(settled.descriptor, settled.survivors)  # or nobody needs this site's sketch
    return replace(settled, stage=Stage.SETTLED, seed=ERASED, mask_key=ERASED), b""


def _settle_members(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:  # noqa: ARG001
    """KeyList -> nothing yet: the update to be shared is not at hand (``sharing_updates``), or still to be made."""
    session = state.descriptor
    known = with_keys(state, body)
    dealing_of(session, known.members)
    require_one_opening(known, session.participants, session.needed_acks)
    _require_agreeable(known)
    view = view_digest(session.sid, known.keys, (), ())
    after = replace(known, stage=Stage.SETTLED, survivors=known.members, view=view, seed=ERASED, mask_key=ERASED)
    return after, b""


def _require_agreeable(state: SiteState) -> None:
    """That boxes can be sealed for everybody, before any is."""
    seal_key = loaded(state.seal_key)
    for message in state.keys:
        try:
            agree(seal_key, Keys.from_bytes(message.body).seal_key)
        except SecureSumFailed as error:
            raise abort(AbortCode.BAD_KEY, str(error), [message.sender]) from None


def _agree(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Deals -> Agree: these deals, and from now on no others. Each is an acknowledgement of the survivors too."""
    sid, sharing = state.descriptor.sid, _sharing(state)
    deals = read_signed_list(body, Kind.DEAL, sid)
    _require_dealt(state, deals, state.view, state.survivors)
    agreement = agreement_on(sid, state.view, deals)
    try:
        boxes, own_proof = prove_short(state, sharing, agreement)
    except InvalidUpdate as error:
        raise abort(AbortCode.BAD_DEALER, str(error), [state.site]) from None
    agreed = sign(member.key, Kind.AGREE, sid, Deal(agreement, digests_of(boxes)).to_bytes())
    kept = Sharing(
        deal=agreed.to_bytes(),
        own=sharing.own,
        own_proof=own_proof,
        deals=deals,
        agreement=agreement,
        challenge=agreement,
    )
    return replace(state, stage=Stage.AGREED, sharing=kept), with_boxes(agreed, boxes)


def _confirm(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Proofs -> Confirm: these proofs, and from now on no others; who has sent none is no dealer any more."""
    sid, sharing = state.descriptor.sid, _sharing(state)
    proofs = read_signed_list(body, Kind.AGREE, sid)
    _require_dealt(state, proofs, sharing.agreement, [deal.sender for deal in sharing.deals])
    proving = {proof.sender for proof in proofs}
    deals = tuple(deal for deal in sharing.deals if deal.sender in proving)
    challenge = agreement_on_proofs(sid, sharing.agreement, proofs)
    kept = replace(sharing, deal=b"", deals=deals, proofs=proofs, challenge=challenge)
    return replace(state, stage=Stage.CONFIRMED, sharing=kept), sign(
        member.key, Kind.CONFIRM, sid, challenge
    ).to_bytes()


def _require_dealt(state: SiteState, dealt: Sequence[Signed], view: bytes, among: Collection[bytes]) -> None:
    """What was dealt is of enough sites, this one among them, and all after the same.

    Raises:
        SecureSumFailed: it is not.
    """
    session, members, own = state.descriptor, set(state.survivors), _sharing(state).deal
    require_signed(dealt, state.public_key_of)
    for message in dealt:
        deal = Deal.from_bytes(message.body)
        if message.sender not in among or deal.view != view:
            raise abort(AbortCode.BAD_LIST, "a deal is of another view of this session", [message.sender])
        if set(deal.digests) != members - {message.sender}:
            raise abort(AbortCode.BAD_LIST, "a deal is not one for every other survivor", [message.sender])
    require_enough(len(dealt), session.needed_acks, "sites have acknowledged the survivors")
    require_enough(len(dealt), session.needed_survivors, "sites have dealt")
    dealing_of(session, state.survivors).require_masks([message.sender for message in dealt])
    if not any(own.startswith(message.to_bytes()) for message in dealt):
        raise abort(AbortCode.LATE, "the deals do not hold the one that this site has sent")


def _answer(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Boxes -> Products: of the sketches of every two dealers, masked by all the mask dealers that were agreed on."""
    session, sharing = state.descriptor, _sharing(state)
    strict, sid = session.strict, session.sid
    received = Boxes.from_bytes(body, Kind.CONFIRM if strict else Kind.AGREE, sid)
    agreed = sharing.challenge if strict else Deal(sharing.agreement, {}).to_bytes()
    require_agreement(state, received.agreements, agreed, {deal.sender for deal in sharing.deals})
    dealing = dealing_of(session, state.survivors)
    boxes = _opened(state, Kind.DEAL, sharing.deals, received.boxes, sharing.own, dealing.num_elements)
    count = proof_elements(dealing.width)
    proofs = _opened(state, Kind.AGREE, sharing.proofs, received.proofs, sharing.own_proof, lambda _: count)
    answer = products(dealing, boxes, proofs, sharing.agreement, sharing.challenge)
    shares = tuple((dealer, shares_of(dealing, box_B)) for dealer, box_B in boxes.items())
    kept = Sharing(challenge=sharing.challenge, shares=shares)
    after = replace(state, stage=Stage.ANSWERED, seal_key=ERASED, sharing=kept)
    return after, sign(member.key, Kind.PRODUCTS, sid, answer.to_bytes()).to_bytes()


def _opened(
    state: SiteState,
    kind: Kind,
    dealt: Sequence[Signed],
    boxes: Sequence[Box],
    own: Secret,
    num_elements: Callable[[bytes], int],
) -> dict[bytes, Elements]:
    """What is in the boxes that the server has passed on, by dealer, and in this site's own.

    Raises:
        SecureSumFailed: "bad-list": they are not exactly those that their dealers have signed.
    """
    deals = {message.sender: Deal.from_bytes(message.body) for message in dealt}
    received = {box.other: box for box in boxes}
    if set(received) != set(deals) - {state.site}:
        raise abort(AbortCode.BAD_LIST, "the boxes are not those of the dealers agreed on")
    if any(box.digest != deals[dealer].digests[state.site] for dealer, box in received.items()):
        raise abort(AbortCode.BAD_LIST, "a box is not the one that its dealer has signed")
    return {
        dealer: opened(own if dealer == state.site else unboxed(state, kind, received[dealer]), num_elements(dealer))
        for dealer in sorted(deals)
    }


def _acknowledge(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Select -> Ack: this one selection, and from now on no other. Of its shares it keeps no more than their sum."""
    session, sharing = state.descriptor, _sharing(state)
    selection = Selection.from_bytes(body)
    require_hidden(selection.weights.values(), session.needed_survivors)
    shares = dict(sharing.shares)
    if not set(selection.sites) <= set(shares):
        raise abort(AbortCode.BAD_LIST, "a site is selected that has dealt nothing")
    if session.mode is Mode.SKETCH and set(selection.weights.values()) != {1}:
        raise abort(AbortCode.BAD_LIST, "a sum of masked updates cannot weigh one more than another")
    member.policy.require_weights(selection.weights.values())
    view = view_of_selection(session.sid, sharing.challenge, selection)
    summed = Secret(to_bytes(sums(dealing_of(session, state.survivors), shares, selection.weights)))
    after = replace(state, stage=Stage.ACKED, view=view, sharing=Sharing(selected=selection.sites, summed=summed))
    # T + K answers open the sum of what was shared, far fewer than acknowledge it: whoever has joins no other attempt.
    before = state.earlier[:-1] if session.mode is Mode.SHARES else state.earlier
    after = replace(after, masked=None, earlier=(*before, Exposure(session.participants, 0)))
    return after, sign(member.key, Kind.ACK, session.sid, view).to_bytes()


def _reveal(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """AckList -> Sum: a share of the selected vectors' sum, and with sketches the shares that open the updates' sum."""
    session, sharing = state.descriptor, _sharing(state)
    require_agreement(state, read_signed_list(body, Kind.ACK, session.sid), state.view, state.survivors)
    summed = sharing.summed.reveal_bytes()
    answer = SumAnswer(Unmask(shares_given(state, sharing.selected)), from_bytes(summed, len(summed) // ELEMENT_BYTES))
    after = replace(state, stage=Stage.REVEALED, held=(), sharing=None)
    return after, sign(member.key, Kind.SUM, session.sid, answer.to_bytes()).to_bytes()


def _sharing(state: SiteState) -> Sharing:
    assert state.sharing is not None  # noqa: S101  (in every stage from masking to the sum)
    return state.sharing


SKETCHED: Answers = {
    Kind.SURVIVORS: (Stage.MASKED, _settle),
    Kind.DEALS: (Stage.DEALT, _agree),
    Kind.BOXES: (Stage.AGREED, _answer),
    Kind.SELECT: (Stage.ANSWERED, _acknowledge),
    Kind.ACK_LIST: (Stage.ACKED, _reveal),
}
PROVED: Answers = SKETCHED | {
    Kind.PROOFS: (Stage.AGREED, _confirm),
    Kind.BOXES: (Stage.CONFIRMED, _answer),
}
SHARED: Answers = PROVED | {Kind.KEY_LIST: (Stage.KEYS_SENT, _settle_members)}
