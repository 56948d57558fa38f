"""A site's sketch, once all updates are masked and none can be changed: made and shared.

Shape suffixes: D coordinates, S = 2,048 values of a sketch, L values of what is shared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...errors import InvalidUpdate
from ..secrets import Secret
from ..sharing.field import Elements, Integers, Stream, to_bytes
from ..sharing.sketches import coarse, sketch
from .codes import AbortCode, Refusal
from .dealing import dealing_of, dealt, proved
from .descriptor import SessionDescriptor
from .keys import PROTOCOL, agree, derive, loaded, seal, unseal
from .masking import plain_words, update_digest
from .member import Member
from .messages import Keys
from .prg import Words, stream
from .sharing_messages import Box, Deal, digests_of, with_boxes
from .signing import Kind, Signed, sign
from .sketch_terms import shift_of
from .state import ERASED, Sharing, SiteState, Stage, Step


def sketch_of(session: SessionDescriptor, view: bytes, words_D: Words) -> Integers:
    """Jx, S whole numbers; J from SHA-256("fl-sa/v1/J" ‖ sid ‖ view), so from everybody's masked update."""
    seed = Secret(hashlib.sha256(PROTOCOL + b"J" + session.sid + view).digest())
    return sketch(words_D.view(session.ring.signed), stream(seed))


def share_sketch(state: SiteState, update_D: npt.NDArray[np.float32], member: Member) -> Step:
    """Sketch this site's update and share the sketch; the answer is a Deal message with a box for every survivor.

    May be called again after a restart: what was dealt is sent again.

    Args:
        state: after the survivors.
        update_D: float32, the very update that was masked.
        member: this site.

    Raises:
        InvalidUpdate: it is another one. The state stays good.
    """
    sharing = state.sharing
    if sharing is not None and state.stage is Stage.DEALT:
        return Step(state, sharing.deal)
    if sharing is None or state.stage is not Stage.SETTLED:
        refusal = Refusal(AbortCode.BAD_MESSAGE, f"nothing is to be sketched after {state.stage.name.lower()}")
        return Step(state, refusal=state.refusal or refusal)
    session = state.descriptor
    words_D = plain_words(session, update_D, state.rounding)
    if update_digest(words_D) != sharing.update_digest:
        raise InvalidUpdate("the update is not the one that was masked; this round goes on without it")
    sketch_S = coarse(sketch_of(session, state.view, words_D), shift_of(session))
    deal, boxes, own = deal_vector(state, sketch_S, member, os.urandom)
    sent = with_boxes(deal, boxes)
    kept = Sharing(vector=kept_vector(sketch_S) if session.strict else ERASED, deal=sent, own=own)
    return Step(replace(state, stage=Stage.DEALT, rounding=ERASED, sharing=kept), sent)


def deal_vector(state: SiteState, vector_L: Integers, member: Member, draw: Stream) -> tuple[Signed, list[Box], Secret]:
    """Share a vector among all survivors: the Deal message, its boxes, and this site's own.

    Args:
        draw: private randomness.

    Raises:
        InvalidUpdate: a value is too large to be shared.
    """
    session = state.descriptor
    dealing = dealing_of(session, state.survivors)
    boxes, own = boxed(state, Kind.DEAL, dealing.members, dealt(dealing, state.site, vector_L, draw))
    return sign(member.key, Kind.DEAL, session.sid, Deal(state.view, digests_of(boxes)).to_bytes()), boxes, own


def kept_vector(vector_L: Integers) -> Secret:
    """What a site has shared, to be kept until it is proved short."""
    return Secret(vector_L.astype("<i8").tobytes())


def vector_kept(sharing: Sharing) -> Integers:
    """The same read again."""
    return np.frombuffer(sharing.vector.reveal_bytes(), "<i8").astype(np.int64)


def prove_short(state: SiteState, sharing: Sharing, agreement: bytes) -> tuple[list[Box], Secret]:
    """Boxes with proofs that this site's vector is short, and its own; none where nothing is to be proved.

    Raises:
        InvalidUpdate: it is not.
    """
    if not state.descriptor.strict:
        return [], ERASED
    dealing = dealing_of(state.descriptor, state.survivors)
    return boxed(state, Kind.AGREE, dealing.members, proved(dealing, vector_kept(sharing), agreement, os.urandom))


def boxed(state: SiteState, kind: Kind, members: Sequence[bytes], rows: Elements) -> tuple[list[Box], Secret]:
    """A sealed box for each other member, and this site's own."""
    boxes, own, sid = [], ERASED, state.descriptor.sid
    for holder, row in zip(members, rows, strict=True):
        if holder == state.site:
            own = Secret(to_bytes(row))
            continue
        key = box_key(state, kind, state.site, holder)
        ciphertext = seal(key, to_bytes(row), sid=sid, kind=kind.label, sender=state.site, receiver=holder)
        boxes.append(Box(holder, ciphertext))
    return boxes, own


def unboxed(state: SiteState, kind: Kind, box: Box) -> Secret | None:
    """What a dealer has sealed for this site; None where it does not open."""
    key = box_key(state, kind, box.other, state.site)
    sid = state.descriptor.sid
    return unseal(key, box.ciphertext, sid=sid, kind=kind.label, sender=box.other, receiver=state.site)


def box_key(state: SiteState, kind: Kind, dealer: bytes, holder: bytes) -> Secret:
    """The key of one box: HKDF of the two seal keys' X25519 secret, "seal/deal" or "seal/agree", dealer, holder."""
    other = holder if dealer == state.site else dealer
    keys = next(Keys.from_bytes(message.body) for message in state.keys if message.sender == other)
    shared = agree(loaded(state.seal_key), keys.seal_key)
    return derive(state.descriptor.sid, shared, f"seal/{kind.label}", dealer, holder)
