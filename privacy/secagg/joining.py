"""A site's answer to an offer: everything about it is checked, then fresh keys.

In a session over groups, the site works out its group and joins that group's session; from here on there is no other.
"""

from __future__ import annotations

from ...errors import SecureSumFailed
from .codes import AbortCode, Refusal, abort, refusal_of
from .descriptor import Mode, SessionDescriptor
from .groups import group_session
from .keys import commitment, fresh_secret, public_key
from .member import Local, Member
from .messages import Keys, Offer, unframe
from .roster import Roster
from .signing import Kind, sign
from .state import SiteState, Stage, Step, answered

MAX_OFFER_BYTES = 2 << 20
MAX_SHARED = 2  # each attempt draws other sketches of the same update, and lets each colluder ask another question


def join(message: bytes, member: Member, local: Local, previous: SiteState | None = None) -> Step | Refusal:
    """Answer an offer with fresh keys.

    Args:
        message: the server's offer.
        member: this site.
        local: what it knows about the work.
        previous: the state of its latest attempt at the same run and round, which the new one replaces.
    """
    if previous is not None and (answer := previous.answer_to(message)):
        return Step(previous, answer.reply)
    try:
        state = _joined(message, member, local, previous)
    except SecureSumFailed as error:
        return refusal_of(error)
    sid = state.descriptor.sid
    keys = Keys(public_key(state.seal_key), public_key(state.mask_key), commitment(sid, state.site, state.seed))
    return answered(state, message, sign(member.key, Kind.KEYS, sid, keys.to_bytes()).to_bytes())


def _joined(message: bytes, member: Member, local: Local, previous: SiteState | None) -> SiteState:
    if len(message) > MAX_OFFER_BYTES:
        raise abort(AbortCode.BAD_MESSAGE, f"the offer has {len(message)} bytes, at most {MAX_OFFER_BYTES}")
    kind, sid, body = unframe(message)
    offer = Offer.from_bytes(body)
    session, roster = SessionDescriptor.from_bytes(offer.descriptor), Roster.from_bytes(offer.roster)
    if kind is not Kind.OFFER or sid != session.sid:
        raise abort(AbortCode.BAD_MESSAGE, "the message is not the offer of the session that it names")
    roster.verify(member.operator_key, federation=member.federation, at_least=local.roster_version)
    if session.federation != member.federation or session.roster_digest != roster.digest:
        raise abort(AbortCode.POLICY, "the session names another federation or another roster")
    site, keys = member.site, roster.by_id
    if strangers := [other for other in session.participants if other not in keys]:
        raise abort(AbortCode.NOT_IN_ROSTER, "participants are not in the roster", strangers)
    if site not in session.participants:
        raise abort(AbortCode.BAD_LIST, "this site is not among the participants")
    member.policy.require(session)
    _require_same_work(session, local)
    _require_fresh(session, local, previous)
    if session.mode is Mode.GROUPS:
        session = group_session(session, site)
        _require_same_group(session, local)
    return SiteState(
        stage=Stage.KEYS_SENT,
        descriptor=session,
        site=site,
        public_keys=tuple(keys[other] for other in session.participants),
        roster_version=roster.version,
        seal_key=fresh_secret(),
        mask_key=fresh_secret(),
        seed=fresh_secret(),
        rounding=fresh_secret(),
        earlier=previous.exposures if previous else (),
    )


def _require_same_work(session: SessionDescriptor, local: Local) -> None:
    for what, theirs, ours in (
        ("tensor layout", session.layout_digest, local.layout_digest),
        ("model", session.model_digest, local.model_digest),
        ("configuration", session.config_digest, local.config_digest),
    ):
        if theirs != ours:
            reason = f"the session is about another {what} ({theirs.hex()[:12]}) than this site was given"
            raise abort(AbortCode.POLICY, f"{reason} ({ours.hex()[:12]})")
    if session.num_coordinates != local.num_coordinates:
        reason = f"the session sums {session.num_coordinates} coordinates, the layout has {local.num_coordinates}"
        raise abort(AbortCode.POLICY, reason)


def _require_same_group(session: SessionDescriptor, local: Local) -> None:
    if local.group and not session.regroups and local.group != session.participants:
        reason = "this site would be in another group than before in this run: sums over both tell its update apart"
        raise abort(AbortCode.BAD_GROUPING, reason)


def _require_fresh(session: SessionDescriptor, local: Local, previous: SiteState | None) -> None:
    used = local.model_used_in
    if used is not None and used != (session.run, session.round):
        raise abort(AbortCode.POLICY, f"model-reused: this model was used in round {used[1]} of run {used[0]}")
    if previous is None:
        return
    before = previous.descriptor
    if (before.run, before.round) != (session.run, session.round):
        raise ValueError("previous must be of the same run and round")
    if previous.stage is Stage.REVEALED:
        raise abort(AbortCode.ALREADY_REVEALED, f"round {session.round} of run {session.run} was revealed before")
    if previous.exposures and session.model_digest != before.model_digest:
        # Else this round would be remembered as that of another model, and the first could be summed from again.
        raise abort(AbortCode.POLICY, "this site has sent an update of another model in this round")
    if session.mode in (Mode.SKETCH, Mode.SHARES) and len(previous.exposures) >= MAX_SHARED:
        reason = f"this site has sent its update in {MAX_SHARED} attempts, each of which may have shown products"
        raise abort(AbortCode.POLICY, f"{reason} of it; another would show more")
    if session.attempt <= before.attempt:
        raise abort(AbortCode.POLICY, f"attempt {session.attempt} is not after attempt {before.attempt}")
