"""A site's answers in a session of sketches, from the survivors on.

Every list is agreed on before anything is answered that depends on it: the survivors by the deals that are about them,
the deals by agreements, the selection by acknowledgements. Holders that answered about different lists would together
tell a server more than products: each list gives it another equation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..secrets import Secret
from ..sharing.selection import hides_enough
from .agreement import require_agreement, shares_given, with_survivors
from .checks import require_enough, require_signed
from .codes import AbortCode, abort
from .dealing import Dealing, dealing_of, opened, products, shares_of, sums
from .keys import unseal
from .member import Member
from .messages import Unmask, read_signed_list
from .sharing_messages import (
    Box,
    Boxes,
    Deal,
    Selection,
    SumAnswer,
    agreement_on,
    view_of_selection,
)
from .signing import Kind, Signed, sign
from .sketching import box_key
from .state import ERASED, Answers, Sharing, SiteState, Stage


def _settle(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:  # noqa: ARG001
    """Survivors -> nothing yet: the sketch is made of the update, which is not at hand (``sketching``)."""
    settled = with_survivors(state, body)
    dealing_of(settled.descriptor, settled.survivors)  # or nobody needs this site's sketch
    return replace(settled, stage=Stage.SETTLED, seed=ERASED, mask_key=ERASED), b""


def _agree(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Deals -> Agree: these deals, and from now on no others. Each is an acknowledgement of the survivors too."""
    sid, sharing = state.descriptor.sid, _sharing(state)
    deals = read_signed_list(body, Kind.DEAL, sid)
    require_deals(state, dealing_of(state.descriptor, state.survivors), deals)
    if not any(sharing.deal.startswith(deal.to_bytes()) for deal in deals):
        raise abort(AbortCode.LATE, "the deals do not hold the one that this site has sent")
    agreement = agreement_on(sid, state.view, deals)
    after = replace(state, stage=Stage.AGREED, sharing=replace(sharing, deal=b"", deals=deals, agreement=agreement))
    return after, sign(member.key, Kind.AGREE, sid, agreement).to_bytes()


def require_deals(state: SiteState, dealing: Dealing, deals: tuple[Signed, ...]) -> None:
    """The deals are those of enough survivors, all in this site's view.

    Raises:
        SecureSumFailed: they are not.
    """
    session, members = state.descriptor, set(dealing.members)
    require_signed(deals, state.public_key_of)
    for message in deals:
        deal = Deal.from_bytes(message.body)
        if message.sender not in members or deal.view != state.view:
            raise abort(AbortCode.BAD_LIST, "a deal is of another view of this session", [message.sender])
        if set(deal.digests) != members - {message.sender}:
            raise abort(AbortCode.BAD_LIST, "a deal is not one for every other survivor", [message.sender])
    require_enough(len(deals), session.needed_acks, "sites have acknowledged the survivors")
    require_enough(len(deals), session.needed_survivors, "sites have dealt sketches")
    dealing.require_masks([message.sender for message in deals])


def _answer(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Boxes -> Products: of the sketches of every two dealers, masked by all the mask dealers that were agreed on."""
    sid, sharing = state.descriptor.sid, _sharing(state)
    received = Boxes.from_bytes(body, sid)
    deals = {message.sender: Deal.from_bytes(message.body) for message in sharing.deals}
    require_agreement(state, received.agreements, sharing.agreement, deals)
    boxes = {box.other: box for box in received.boxes}
    if set(boxes) != set(deals) - {state.site}:
        raise abort(AbortCode.BAD_LIST, "the boxes are not those of the dealers agreed on")
    if any(box.digest != deals[dealer].digests[state.site] for dealer, box in boxes.items()):
        raise abort(AbortCode.BAD_LIST, "a box is not the one that its dealer has signed")
    dealing = dealing_of(state.descriptor, state.survivors)
    elements = {
        dealer: opened(dealing, dealer, sharing.own if dealer == state.site else _unsealed(state, boxes[dealer]))
        for dealer in sorted(deals)
    }
    answer = products(dealing, elements, sharing.agreement)
    shares = tuple((dealer, shares_of(dealing, box_B)) for dealer, box_B in elements.items())
    kept = Sharing(agreement=sharing.agreement, shares=shares)
    after = replace(state, stage=Stage.ANSWERED, seal_key=ERASED, sharing=kept)
    return after, sign(member.key, Kind.PRODUCTS, sid, answer.to_bytes()).to_bytes()


def _unsealed(state: SiteState, box: Box) -> Secret | None:
    key = box_key(state, box.other, state.site)
    sid, kind = state.descriptor.sid, Kind.DEAL.label
    return unseal(key, box.ciphertext, sid=sid, kind=kind, sender=box.other, receiver=state.site)


def _acknowledge(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Select -> Ack: this one selection, and from now on no other."""
    session, sharing = state.descriptor, _sharing(state)
    selection = Selection.from_bytes(body)
    weights_N = [selection.weights[site] for site in selection.sites]
    if not hides_enough(np.array(weights_N, np.int64), session.needed_survivors):
        reason = f"the selection of {len(weights_N)} sites does not hide an update as {session.needed_survivors} do"
        raise abort(AbortCode.SELECTION_TOO_SMALL, reason)
    if not set(selection.sites) <= {dealer for dealer, _ in sharing.shares}:
        raise abort(AbortCode.BAD_LIST, "a site is selected that has dealt no sketch")
    if set(weights_N) != {1}:
        raise abort(AbortCode.BAD_LIST, "a sum of masked updates cannot weigh one more than another")
    view = view_of_selection(session.sid, sharing.agreement, selection)
    after = replace(state, stage=Stage.ACKED, view=view, sharing=replace(sharing, selected=selection.sites))
    return after, sign(member.key, Kind.ACK, session.sid, view).to_bytes()


def _reveal(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """AckList -> Sum: the shares that open the selected updates' sum, and a share of the sum of their sketches."""
    session, sharing = state.descriptor, _sharing(state)
    shares = dict(sharing.shares)
    require_agreement(state, read_signed_list(body, Kind.ACK, session.sid), state.view, shares)
    dealing = dealing_of(session, state.survivors)
    answer = SumAnswer(
        Unmask(shares_given(state, sharing.selected)), sums(dealing, shares, dict.fromkeys(sharing.selected, 1))
    )
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
