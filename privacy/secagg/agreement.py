"""What a site makes sure of before it gives anything away: that enough others see the same session as it does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from .checks import require_distinct_keys, require_enough, require_group, require_signed, view_digest
from .codes import AbortCode, abort
from .messages import Revealed, Which, read_signed_list
from .signing import Kind, Signed
from .state import SiteState


def with_keys(state: SiteState, body: bytes) -> SiteState:
    """The state in which everybody's keys are known, from a key list.

    Raises:
        SecureSumFailed: the list is not one in which this site takes part as it has, or a key in it is there twice.
    """
    session, sid = state.descriptor, state.descriptor.sid
    require_group(session, body)
    keys = read_signed_list(body, Kind.KEYS, sid)
    require_signed(keys, state.public_key_of)
    own = next((answer.reply for answer in state.answers if answer.reply[:1] == bytes([Kind.KEYS])), None)
    if own not in {message.to_bytes() for message in keys if message.sender == state.site}:
        raise abort(AbortCode.BAD_LIST, "the key list does not hold the keys that this site has sent")
    require_enough(len(keys), session.min_sites, "sites have sent keys")
    require_distinct_keys(keys)
    return replace(state, keys=keys)


def require_one_opening(state: SiteState, members: Collection[bytes], threshold: int) -> None:
    """Two attempts with this site's update must not both be opened, even by different sites.

    Each needs so many less c honest sites, and each of those takes part in the opening of one attempt at a round. So
    t + t' > |members of either| + c leaves too few for the other one.

    Raises:
        SecureSumFailed: "policy".
    """
    for before in state.exposures:
        if not before.threshold:
            reason = (
                "this site has acknowledged a selection in an earlier attempt at this round, which may yet be summed"
            )
            raise abort(AbortCode.POLICY, reason)
        either = len(set(before.members) | set(members))
        if before.threshold + threshold <= either + state.descriptor.colluders:
            raise abort(AbortCode.POLICY, "so many sites have left since the last attempt that both could be opened")


def with_survivors(state: SiteState, body: bytes) -> SiteState:
    """The state in which the survivors of a survivors message are settled, and with them the view.

    Raises:
        SecureSumFailed: the list is not one in which this site takes part as it has.
    """
    session, sid = state.descriptor, state.descriptor.sid
    masked = read_signed_list(body, Kind.MASKED, sid)
    survivors = tuple(message.sender for message in masked)
    if state.site not in survivors:
        raise abort(AbortCode.LATE, "the sum goes on without this site")
    require_enough(len(survivors), session.needed_survivors, "masked updates are in the sum")
    if not set(survivors) <= set(state.dealers):
        raise abort(AbortCode.BAD_LIST, "a survivor has dealt no shares")
    require_signed(masked, state.public_key_of)
    if state.masked not in masked:
        raise abort(AbortCode.BAD_LIST, "the survivors list holds another masked update of this site than it has sent")
    return replace(state, survivors=survivors, view=view_digest(sid, state.keys, state.dealers, masked))


def require_agreement(state: SiteState, messages: Sequence[Signed], digest: bytes, among: Collection[bytes]) -> None:
    """So many of ``among`` have signed this digest that no other one can have as many.

    Raises:
        SecureSumFailed: "bad-list", "bad-signature" or "too-few".
    """
    require_signed(messages, state.public_key_of)
    if wrong := [message.sender for message in messages if message.body != digest or message.sender not in among]:
        raise abort(AbortCode.BAD_LIST, "sites have acknowledged another view of this session", wrong)
    require_enough(len(messages), state.descriptor.needed_acks, "sites have acknowledged this view")


def shares_given(state: SiteState, summed: Collection[bytes]) -> tuple[Revealed, ...]:
    """Of each dealer one share: of the seed if its update is summed, of the mask key if not."""
    return tuple(
        Revealed(item.owner, Which.SEED, item.seed_share)
        if item.owner in summed
        else Revealed(item.owner, Which.MASK_KEY, item.mask_share)
        for item in state.held
    )
