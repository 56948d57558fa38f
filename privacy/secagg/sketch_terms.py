"""What a session of sketches fixes, and what it must fulfil for sketches to be shared."""

from __future__ import annotations

import math

from ..sharing.sketches import shift_for
from .descriptor import SessionDescriptor
from .holders import sharing_fault
from .prg import Ring
from .quantise import norm_bound

MAX_BOUND = 1 << 20


def bound_of(session: SessionDescriptor) -> int:
    """B, the greatest norm that an update has in steps."""
    return math.ceil(norm_bound(session.scale, session.clip_norm, session.num_coordinates))


def finest_sketched_scale(clip_norm: float, num_coordinates: int) -> float:
    """The largest power of two of steps per unit with which no update is longer than sketches allow; 1 at least."""
    scale = 2.0 ** math.floor(math.log2(MAX_BOUND / clip_norm))
    while scale > 1 and math.ceil(norm_bound(scale, clip_norm, num_coordinates)) > MAX_BOUND:
        scale /= 2
    return max(1.0, scale)


def shift_of(session: SessionDescriptor) -> int:
    """r, the bits that every sketch loses."""
    return shift_for(bound_of(session))


def sketch_fault(session: SessionDescriptor) -> str | None:
    """The first condition that this session does not fulfil, in one sentence, or None."""
    fault = sharing_fault(
        session.num_sites,
        byzantine=session.byzantine,
        privacy_threshold=session.privacy_threshold,
        dropouts=session.dropouts,
        wrong_holders=session.wrong_holders,
    )
    t, c, bound = session.privacy_threshold, session.colluders, bound_of(session)
    conditions = (
        (fault is None, f"sketches cannot be shared: {fault}"),
        (c <= t, f"{c} sites may collude, and the privacy threshold T is {t}: together they could see a sketch"),
        (session.packing == 1, f"the packing K is {session.packing}, expected 1 for sketches"),
        (not session.weighted, "sums of selected updates are not weighted"),
        (session.degree == 0, f"each site has {session.degree} neighbours, expected all (0) for sketches"),
        (session.ring is Ring.W32, f"sums have words of {session.ring.value} bits, expected 32 for sketches"),
        (bound <= MAX_BOUND, f"updates may be {bound} steps long, expected at most {MAX_BOUND}: lower the scale"),
    )
    return next((reason for holds, reason in conditions if not holds), None)
