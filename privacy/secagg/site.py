"""A site's half of a secure sum: a message of the server in, a new state and an answer out.

The caller stores the state before the answer leaves. Then a restart at any point answers the same message with the
same bytes, and no message makes a site answer twice differently. A refusal ends the session and erases its secrets.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import SecureSumFailed
from ..secrets import Secret
from .agreement import require_agreement, require_one_opening, shares_given, with_keys, with_survivors
from .checks import require_enough, session_graph
from .codes import AbortCode, Refusal, abort, refusal_of
from .descriptor import Mode, SessionDescriptor
from .keys import agree, derive, loaded, seal, unseal
from .member import Member
from .messages import (
    Complaint,
    Deliver,
    Keys,
    Sealed,
    Shares,
    Unmask,
    read_signed_list,
    require_sorted,
    unframe,
)
from .shamir import SHARE_BYTES, is_share, share
from .sharing_messages import max_session_message_bytes
from .sharing_site import PROVED, SHARED, SKETCHED
from .signing import Kind, sign
from .state import Answers, Held, SiteState, Stage, Step, answered


def receive(state: SiteState, message: bytes, member: Member) -> Step:
    """Answer a message of the server in a session that this site has joined."""
    if answer := state.answer_to(message):
        return Step(state, answer.reply or None)
    try:
        kind, body = _framed(state, message)
    except SecureSumFailed as error:
        return Step(state, refusal=refusal_of(error))
    if state.stage is Stage.REVEALED:
        return Step(state, refusal=Refusal(AbortCode.ALREADY_REVEALED, "this site has given its shares away"))
    if state.stage is Stage.ENDED:
        return Step(state, refusal=state.refusal)
    if not state.answers:
        reason = "the round is over, and nothing more is expected of its secure sum"
        return Step(state, refusal=Refusal(AbortCode.BAD_MESSAGE, reason))
    try:
        expected, answer_with = _answers_in(state.descriptor).get(kind, (None, None))
        if answer_with is None or state.stage is not expected:
            raise abort(AbortCode.BAD_MESSAGE, f"no {kind.label} message is expected after {state.stage.name.lower()}")
        after, reply = answer_with(state, body, member)
    except SecureSumFailed as error:
        refusal = refusal_of(error)
        return Step(state.ended(refusal), refusal=refusal)
    return answered(after, message, reply)


def _framed(state: SiteState, message: bytes) -> tuple[Kind, bytes]:
    limit = max_session_message_bytes(state.descriptor)
    if len(message) > limit:
        raise abort(AbortCode.BAD_MESSAGE, f"the message has {len(message)} bytes, at most {limit}")
    kind, sid, body = unframe(message)
    if sid != state.descriptor.sid:
        raise abort(AbortCode.BAD_MESSAGE, f"the message is of session {sid.hex()[:12]}, not of this one")
    return kind, body


def _deal(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """KeyList -> Shares: check everybody's keys, then seal shares of both secrets to each holder."""
    session, sid = state.descriptor, state.descriptor.sid
    state = replace(with_keys(state, body), stage=Stage.SHARES_SENT)
    holders = session_graph(session, state.keys).holders(state.site)
    require_enough(len(holders), state.threshold, "sites would hold shares of this site's secrets")
    require_one_opening(state, state.members, state.threshold)
    bodies = {message.sender: Keys.from_bytes(message.body) for message in state.keys}
    seed_shares = share(state.seed, state.threshold, len(holders))
    mask_shares = share(state.mask_key, state.threshold, len(holders))
    seal_key, mask_key = loaded(state.seal_key), loaded(state.mask_key)
    sealed = []
    for holder, seed_share, mask_share in zip(holders, seed_shares, mask_shares, strict=True):
        if holder == state.site:
            state = replace(state, held=(Held(holder, seed_share, mask_share),))
            continue
        try:
            agree(mask_key, bodies[holder].mask_key)  # before any share leaves
            key = derive(sid, agree(seal_key, bodies[holder].seal_key), "seal/shares", state.site, holder)
        except SecureSumFailed as error:
            raise abort(AbortCode.BAD_KEY, str(error), [holder]) from None
        plain = seed_share.reveal_bytes() + mask_share.reveal_bytes()
        kind = Kind.SHARES.label
        sealed.append(Sealed(holder, seal(key, plain, sid=sid, kind=kind, sender=state.site, receiver=holder)))
    return state, sign(member.key, Kind.SHARES, sid, Shares(tuple(sealed)).to_bytes()).to_bytes()


def _take_shares(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Deliver -> nothing, or a complaint about the dealers whose shares do not open, or are none."""
    session, sid = state.descriptor, state.descriptor.sid
    delivered = Deliver.from_bytes(body)
    require_sorted(delivered.dealers, "the list of dealers")
    require_enough(len(delivered.dealers), session.min_sites, "sites have dealt shares")
    graph, dealers = session_graph(session, state.keys), set(delivered.dealers)
    neighbours = [site for site in graph.neighbours(state.site) if site in dealers]
    if state.site not in dealers or not dealers <= set(state.members):
        raise abort(AbortCode.BAD_LIST, "the dealers are not sites that sent keys, this one among them")
    require_enough(len(neighbours) + 1, state.threshold, "holders of this site's shares are left")
    if [item.other for item in delivered.sealed] != neighbours:
        raise abort(AbortCode.BAD_LIST, "the shares delivered are not those of this site's neighbours, in order")
    bodies = {message.sender: Keys.from_bytes(message.body) for message in state.keys}
    held, bad, seal_key = list(state.held), [], loaded(state.seal_key)
    for item in delivered.sealed:
        key = derive(sid, agree(seal_key, bodies[item.other].seal_key), "seal/shares", item.other, state.site)
        kind = Kind.SHARES.label
        opened = unseal(key, item.ciphertext, sid=sid, kind=kind, sender=item.other, receiver=state.site)
        plain = b"" if opened is None else opened.reveal_bytes()
        halves = Secret(plain[:SHARE_BYTES]), Secret(plain[SHARE_BYTES:])
        if not plain or not all(map(is_share, halves)):  # or the server would blame this site when it reveals them
            bad.append(item.other)
            continue
        held.append(Held(item.other, *halves))
    held.sort(key=lambda item: item.owner)
    after = replace(state, stage=Stage.DELIVERED, dealers=delivered.dealers, held=tuple(held))
    if not bad:
        return after, b""
    return after, sign(member.key, Kind.COMPLAINT, sid, Complaint(tuple(bad)).to_bytes()).to_bytes()


def _acknowledge(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """Survivors -> Ack: this one view, and from now on no other. Its own secrets are not needed any more."""
    agreed = with_survivors(state, body)
    after = replace(agreed.erased(), stage=Stage.ACKED)
    return after, sign(member.key, Kind.ACK, state.descriptor.sid, agreed.view).to_bytes()


def _reveal(state: SiteState, body: bytes, member: Member) -> tuple[SiteState, bytes]:
    """AckList -> Unmask: of each dealer one share, of the secret that the acknowledged survivors call for."""
    sid = state.descriptor.sid
    require_agreement(state, read_signed_list(body, Kind.ACK, sid), state.view, state.survivors)
    unmask = Unmask(shares_given(state, state.survivors))
    after = replace(state, stage=Stage.REVEALED, held=())
    return after, sign(member.key, Kind.UNMASK, sid, unmask.to_bytes()).to_bytes()


_DEALING: Answers = {
    Kind.KEY_LIST: (Stage.KEYS_SENT, _deal),
    Kind.DELIVER: (Stage.SHARES_SENT, _take_shares),
}
_SUM: Answers = _DEALING | {
    Kind.SURVIVORS: (Stage.MASKED, _acknowledge),
    Kind.ACK_LIST: (Stage.ACKED, _reveal),
}


def _answers_in(session: SessionDescriptor) -> Answers:
    match session.mode:
        case Mode.SKETCH:
            return _DEALING | (PROVED if session.strict else SKETCHED)
        case Mode.SHARES:
            return SHARED
        case _:
            return _SUM
