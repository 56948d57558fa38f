"""A site's whole update, shared among all: made into whole numbers, cut into blocks, sealed for each holder.

Shape suffixes: D coordinates.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...errors import InvalidUpdate
from .codes import AbortCode, Refusal
from .keys import derive, fresh_secret
from .masking import plain_words
from .member import Member
from .prg import stream
from .sharing_messages import with_boxes
from .signing import Kind, sign
from .sketching import deal_vector, kept_vector, vector_kept
from .state import ERASED, Exposure, Sharing, SiteState, Stage, Step


def share_update(state: SiteState, update_D: npt.NDArray[np.float32] | npt.NDArray[np.int64], member: Member) -> Step:
    """Share this site's update; what leaves is a Deal message with a box for every member.

    It is too long for a session, so it goes as masked words do: the answer is a Masked message with the SHA-256 of
    the Deal message, which is the step's ``words`` (bytes). May be called again after a restart: the same is dealt
    again, from a stored seed, and the update is not looked at.

    Args:
        state: after the key list.
        update_D: float32, the difference from the model received; nothing else can be shared.
        member: this site.

    Raises:
        InvalidUpdate: the update cannot be used. The state stays good.
    """
    session = state.descriptor
    if state.stage is Stage.SETTLED:
        if len(update_D) != session.num_coordinates:
            raise InvalidUpdate(f"the update has {len(update_D)} coordinates, expected {session.num_coordinates}")
        words_D = plain_words(session, update_D, state.rounding)
        sharing = Sharing(vector=kept_vector(words_D.view(session.ring.signed).astype(np.int64)), draw=fresh_secret())
    elif state.sharing is not None and state.stage is Stage.DEALT:
        sharing = state.sharing
    else:
        refusal = Refusal(AbortCode.BAD_MESSAGE, f"nothing is to be shared after {state.stage.name.lower()}")
        return Step(state, refusal=state.refusal or refusal)
    draw = stream(derive(session.sid, sharing.draw, "deal"))
    deal, boxes, own = deal_vector(state, vector_kept(sharing), member, draw)
    sent = with_boxes(deal, boxes)
    if state.stage is Stage.SETTLED:
        sharing = replace(sharing, deal=deal.to_bytes(), own=own)
        exposed = Exposure(session.participants, session.needed_acks)
        earlier = (*state.earlier, exposed)
        state = replace(state, stage=Stage.DEALT, rounding=ERASED, sharing=sharing, earlier=earlier)
    named = sign(member.key, Kind.MASKED, session.sid, hashlib.sha256(sent).digest())
    return Step(state, named.to_bytes(), np.frombuffer(sent, np.uint8))
