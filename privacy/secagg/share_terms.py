"""What is shared in a session, and how long it may be: sketches of updates, or whole updates."""

from __future__ import annotations

import math
from math import isqrt

from ...errors import ConfigError
from ..sharing.field import ELEMENT_BYTES
from ..sharing.products import pair_count
from ..sharing.shortness import PROJECTIONS, width_for
from ..sharing.sketches import PLAUSIBLE, ROWS
from .descriptor import Mode, SessionDescriptor
from .encoding import DIGEST_BYTES, SITE_ID_BYTES
from .holders import MAX_HOLDERS, sharing_fault
from .keys import TAG_BYTES
from .messages import max_message_bytes
from .prg import Ring
from .quantise import norm_bound
from .signing import HEADER_BYTES, SIGNATURE_BYTES
from .sketch_terms import bound_of

# Rules that weigh one update more than another: only where a site allows that.
UNEQUAL_RULES = ("geometric-median", "centered-clipping")
MAX_COORDINATES = 10**7
MAX_SHARED_BYTES = 32 << 20  # what one site holds of the others; the server holds as much for each
MAX_BOUND_BITS = 24  # of updates of whatever length; above, the sum of 64 is beyond 32 bits
BOX_BYTES = SITE_ID_BYTES + 4 + TAG_BYTES  # beside its elements


def length_of(session: SessionDescriptor) -> int:
    """L, how many values a site shares: of a sketch, or of its whole update."""
    return session.num_coordinates if session.mode is Mode.SHARES else ROWS


def width_of(session: SessionDescriptor) -> int:
    """w: projections of a vector as long as is plausible lie within ±2^w. 0 where nothing is proved of vectors.

    Raises:
        ConfigError: vectors that pass the proof could wrap around.
    """
    if session.mode is Mode.SHARES:
        return width_for(bound_of(session), _padded(session.num_coordinates, session.packing))
    return width_for(isqrt(PLAUSIBLE), ROWS) if session.strict else 0


def proof_elements(width: int) -> int:
    """The bits of a proof: of each projection w + 1."""
    return PROJECTIONS * (width + 1) if width else 0


def boxes_bytes(num_sites: int, columns: int, width: int) -> int:
    """What n boxes and proofs, and n signed deals with their digests, take at the most.

    Args:
        columns: elements of one share.
        width: w; 0 where nothing is proved.
    """
    n = min(num_sites, MAX_HOLDERS)
    box = BOX_BYTES + ELEMENT_BYTES * (columns + pair_count(n) + 2)
    proof = BOX_BYTES + ELEMENT_BYTES * (proof_elements(width) + 1) if width else 0
    deal = HEADER_BYTES + DIGEST_BYTES + 4 + n * (SITE_ID_BYTES + DIGEST_BYTES) + SIGNATURE_BYTES
    return n * (box + proof + deal)


def largest_shared(num_sites: int, packing: int, message_bytes: int) -> int:
    """How many values an update may have for n sites to share it; 0 for none.

    Its boxes and proofs must fit into a file of ``MAX_SHARED_BYTES``, and a share of a sum into one message.
    """
    rest = MAX_SHARED_BYTES - boxes_bytes(num_sites, 0, MAX_BOUND_BITS + 3)
    of_sum = message_bytes - max_message_bytes(num_sites)
    return max(0, min(rest // (ELEMENT_BYTES * num_sites), of_sum // ELEMENT_BYTES)) * packing


def finest_shared_scale(clip_norm: float, num_coordinates: int, packing: int) -> float:
    """The largest power of two of steps per unit with which no inner product of updates can wrap around."""
    scale = 2.0 ** math.floor(math.log2(2**MAX_BOUND_BITS / clip_norm))
    while _wraps(math.ceil(norm_bound(scale, clip_norm, num_coordinates)), _padded(num_coordinates, packing)):
        scale /= 2
    return scale


def share_fault(session: SessionDescriptor) -> str | None:
    """The first condition that a session of whole updates does not fulfil, in one sentence, or None."""
    fault = sharing_fault(
        session.num_sites,
        byzantine=session.byzantine,
        privacy_threshold=session.privacy_threshold,
        dropouts=session.dropouts,
        wrong_holders=session.wrong_holders,
        packing=session.packing,
    )
    t, c, d = session.privacy_threshold, session.colluders, session.num_coordinates
    columns = -(-d // max(1, session.packing))
    conditions = (
        (fault is None, f"updates cannot be shared: {fault}"),
        (c <= t, f"{c} sites may collude, and the privacy threshold T is {t}: together they could see an update"),
        (session.strict, "updates are shared only if they are proved short: strict is expected"),
        (not session.weighted, "sites do not weigh their own updates where a rule does"),
        (session.degree == 0, f"each site has {session.degree} neighbours, expected all (0) for shares"),
        (session.ring is Ring.W32, f"updates have words of {session.ring.value} bits, expected 32 for shares"),
        (d <= MAX_COORDINATES, f"the update has {d} values, expected at most {MAX_COORDINATES} to be shared"),
        (
            boxes_bytes(session.num_sites, columns, 0) <= MAX_SHARED_BYTES,
            f"{session.num_sites} sites would hold more than {MAX_SHARED_BYTES} bytes each of {d} values",
        ),
    )
    found = next((reason for holds, reason in conditions if not holds), None)
    if found is None and _wraps(bound_of(session), _padded(d, session.packing)):
        found = (
            f"updates may be {bound_of(session)} steps long, so that inner products could wrap around: lower the scale"
        )
    return found


def _padded(num_coordinates: int, packing: int) -> int:
    """The length of an update in whole blocks; what a dishonest dealer puts behind its end counts as well."""
    return -(-num_coordinates // packing) * packing


def _wraps(bound: int, length: int) -> bool:
    try:
        width_for(bound, length)
    except ConfigError:
        return True
    return False
