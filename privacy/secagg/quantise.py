"""Updates as whole numbers: clipped, scaled, rounded at random without bias (Kairouz et al. 2021, section 4).

Shape suffixes: D coordinates, B a block of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InvalidUpdate
from ..secrets import Secret
from .prg import Keystream, Ring, Words, piece_buffer

MAX_WEIGHT = 1024
MAX_STEPS = 2**50  # scale · clip norm: above, a double no longer holds a coordinate and its fraction
_BLOCK = 1 << 13  # coordinates at a time: two such blocks of 8 bytes each stay in a core's own cache


def largest_coordinate(scale: float, clip_norm: float) -> int:
    """The largest magnitude of a coordinate: the clipped value, rounded up, and one for the rounding of doubles."""
    return math.ceil(scale * clip_norm) + 1


def norm_bound(scale: float, clip_norm: float, num_coordinates: int) -> float:
    """B: what the norm of a quantised update never exceeds.

    min(sC + √d, √(s²C² + d/4 + sC + √d/2)): rounding adds at most √d for certain, and less with probability
    1 - e^(-1/2), so that a few draws meet it (Kairouz et al. 2021, proposition 22 with β = e^(-1/2)).
    """
    steps, root = scale * clip_norm, math.sqrt(num_coordinates)
    return min(steps + root, math.sqrt(steps**2 + num_coordinates / 4 + steps + root / 2))


def fits(
    ring: Ring, num_sites: int, scale: float, clip_norm: float, *, weighted: bool, noise_deviation: float = 0.0
) -> bool:
    """Whether no sum of so many sites can wrap around: n · x_max · weight + 8σ <= 2^(w-1) - 1.

    Args:
        noise_deviation: σ, the standard deviation of the noise of all sites together, in steps.
    """
    largest = largest_coordinate(scale, clip_norm) * (MAX_WEIGHT if weighted else 1)
    return num_sites * largest + math.ceil(8 * noise_deviation) <= ring.largest


def smallest_ring(
    num_sites: int, scale: float, clip_norm: float, *, weighted: bool, noise_deviation: float = 0.0
) -> Ring | None:
    """The ring with the shortest words that holds the sum, arguments as in ``fits``; None where none does."""

    def holds(ring: Ring) -> bool:
        return fits(ring, num_sites, scale, clip_norm, weighted=weighted, noise_deviation=noise_deviation)

    return next((ring for ring in Ring if holds(ring)), None)


def finest_scale(num_sites: int, clip_norm: float, *, weighted: bool) -> float:
    """The largest power of two of steps per unit, up to 2^40, with which a sum of so many sites fits 32-bit words."""
    room = Ring.W32.largest // num_sites // (MAX_WEIGHT if weighted else 1)
    scale = 2.0 ** min(
        40, math.floor(math.log2(max(room, 2) / clip_norm)), math.floor(math.log2(MAX_STEPS / clip_norm))
    )
    while scale > 1 and largest_coordinate(scale, clip_norm) > room:
        scale /= 2
    return max(1.0, scale)


def quantise(
    update_D: npt.NDArray[np.float32],
    *,
    scale: float,
    clip_norm: float,
    ring: Ring,
    seed: Secret,
    weight: int | None = None,
) -> Words:
    """x = weight · ⌊s · v + u⌋ with v the update clipped to L2 norm C and u uniform in [0, 1), as words of the ring.

    The rounding is drawn from ``seed`` alone, so that the same seed gives the same words; it is drawn again
    until the norm is within ``norm_bound``. With a weight, the words are one longer and end with it.

    Raises:
        InvalidUpdate: the update is no float32 vector, holds a value that is not finite, or the weight is no whole
            number from 1 to 1024.
        ValueError: a coordinate may not fit into a word; no session is that large.
    """
    _require(update_D, weight)
    if largest_coordinate(scale, clip_norm) > ring.largest:
        raise ValueError(f"{scale} steps per unit of norm {clip_norm} do not fit into words of {ring.value} bits")
    norm = _norm(update_D)
    if not math.isfinite(norm):
        raise InvalidUpdate("the update holds values that are not finite; nothing leaves this site")
    factor = scale if norm <= clip_norm else scale * clip_norm / norm
    bound = norm_bound(scale, clip_norm, len(update_D))
    words_D = np.empty(len(update_D) + (weight is not None), ring.unsigned)
    stream = Keystream(seed)
    while _round_all(update_D, factor, stream, words_D, weight or 1) > bound:
        pass
    if weight is not None:
        words_D[-1] = weight
    return words_D


def whole_numbers(counters_D: npt.NDArray[np.int64], *, largest: int, ring: Ring) -> Words:
    """Whole numbers as words of the ring, each exactly itself.

    Raises:
        InvalidUpdate: not a flat int64 vector, or a magnitude above ``largest``.
    """
    if counters_D.dtype != np.int64 or counters_D.ndim != 1:
        raise InvalidUpdate(
            f"the counters are {counters_D.dtype} of shape {counters_D.shape}; a sum of whole numbers is of a flat "
            "int64 vector"
        )
    if len(counters_D) and max(-int(counters_D.min()), int(counters_D.max())) > largest:
        raise InvalidUpdate(f"a counter's magnitude is above {largest}, the most that one site may add")
    return counters_D.astype(ring.unsigned)


def _require(update_D: npt.NDArray[Any], weight: int | None) -> None:
    if update_D.dtype != np.float32 or update_D.ndim != 1:
        raise InvalidUpdate(
            f"the update is {update_D.dtype} of shape {update_D.shape}; masks are put on a flat float32 vector",
            hint="integer tensors are no part of a secure sum: keep them local",
        )
    if weight is not None and (isinstance(weight, bool) or not 1 <= weight <= MAX_WEIGHT or int(weight) != weight):
        raise InvalidUpdate(
            f"the weight is {weight!r}, expected a whole number from 1 to {MAX_WEIGHT}",
            hint="divide every site's number of examples by the same number, and round",
        )


def _norm(update_D: npt.NDArray[np.float32]) -> float:
    value_B, squared = np.empty(_BLOCK, np.float64), 0.0
    for start in range(0, len(update_D), _BLOCK):
        part_B = update_D[start : start + _BLOCK]
        wide_B = value_B[: len(part_B)]
        wide_B[:] = part_B
        squared += float(np.dot(wide_B, wide_B))
    return math.sqrt(squared)


def _round_all(
    update_D: npt.NDArray[np.float32], factor: float, stream: Keystream, words_D: Words, weight: int
) -> float:
    """Write the rounded update into ``words_D``, one draw of the rounding; its norm, without the weight."""
    buffer, squared = piece_buffer(), 0.0
    room_2B, signed_D = np.empty((2, _BLOCK)), words_D.view(f"<i{words_D.itemsize}")
    for start in range(0, len(update_D), _BLOCK):
        part_B = update_D[start : start + _BLOCK]
        value_B, draw_B = room_2B[:, : len(part_B)]
        stream.into(buffer, 4 * len(part_B))
        draw_B[:] = buffer[: 4 * len(part_B)].view("<u4")
        draw_B *= 2.0**-32
        value_B[:] = part_B
        value_B *= factor
        value_B += draw_B
        np.floor(value_B, out=value_B)
        squared += float(np.dot(value_B, value_B))
        np.copyto(signed_D[start : start + len(part_B)], value_B, casting="unsafe")
        if weight != 1:
            words_D[start : start + len(part_B)] *= weight  # modulo 2^w, as the ring counts
    return math.sqrt(squared)
