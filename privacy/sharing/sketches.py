"""Sketches: 2,048 integers in place of an update, drawn after the update can no longer be changed.

J is eight count sketches (Charikar, Chen and Farach-Colton 2002) below each other, each with 256 buckets: every
coordinate is added with a random sign to one bucket of each. ⟨Jx, Jy⟩ / 8 estimates ⟨x, y⟩; of a squared distance the
error is about 3 % of its size (√(2 / 2048)). A sketch is linear, so the sum of the chosen updates must have the sum of
their sketches, up to rounding: who had another sketch judged than its update's is found out.

Shape suffixes: D values of an update, S = 2,048 rows of J.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .field import Integers, Stream

TABLES: Final = 8
BUCKETS: Final = 256
ROWS: Final = TABLES * BUCKETS
NORM_BITS: Final = 18

_CHUNK: Final = 1 << 16
_SIGN_BITS: Final = BUCKETS.bit_length() - 1  # from bit b to the bit above a bucket's, by way of >> b

# What a coarse sketch of an update within its bound has at most as square: (1.3 · 2^18)².
PLAUSIBLE: Final = 169 * (1 << 2 * NORM_BITS) // 100


def sketch(update_D: npt.NDArray[np.signedinteger[Any]], stream: Stream) -> Integers:
    """Jx, S exact integers, J from the public ``stream``, for values below 2^31 in size.

    The stream gives, for 65,536 coordinates at a time, their buckets (a byte each) for the first table, the second,
    ... the eighth, then a byte for each coordinate with the sign in table b as bit b, 1 for minus. So much is read
    for the last coordinates too, however few they are.
    """
    sketched = np.zeros((TABLES, BUCKETS), np.int64)
    for start in range(0, len(update_D), _CHUNK):
        values = update_D[start : start + _CHUNK].astype(np.float64)
        drawn = np.frombuffer(stream((TABLES + 1) * _CHUNK), np.uint8).reshape(TABLES + 1, _CHUNK)[:, : len(values)]
        signs = drawn[TABLES].astype(np.intp) << _SIGN_BITS
        for table, buckets in enumerate(drawn[:TABLES]):
            # One sum for each bucket and sign. Sums of 65,536 values below 2^31 are exact.
            sums = np.bincount(signs >> table & BUCKETS | buckets, weights=values, minlength=2 * BUCKETS)
            sketched[table] += (sums[:BUCKETS] - sums[BUCKETS:]).astype(np.int64)
    return sketched.reshape(-1)


def shift_for(bound: int) -> int:
    """r, the low bits that a sketch loses so that its norm is about 2^18: the least with 8 bound² <= 2^(36 + 2r)."""
    return max(0, -(-((TABLES * bound**2 - 1).bit_length() - 2 * NORM_BITS) // 2))


def coarse(sketch_S: Integers, shift: int) -> Integers:
    """The sketch over 2^r, rounded to the nearest, up where it is half-way."""
    return (sketch_S + (1 << shift >> 1)) >> shift


def agree(sketch_of_sum_S: Integers, sum_of_coarse_S: Integers, shift: int, count: int) -> bool:
    """Whether the sum of ``count`` updates has this sketch, as far as rounding can tell: off by 2^(r - 1) for each.

    Exactly, where nothing was rounded.
    """
    off_S = np.abs(sketch_of_sum_S - (sum_of_coarse_S << shift))
    return bool((off_S <= count * (1 << shift >> 1)).all())


def unit_of(shift: int) -> float:
    """What one unit of a coarse sketch's square stands for in squared norm of the update: 2^(2r) / 8."""
    return float(1 << 2 * shift) / TABLES


def too_long(gram_NN: Integers, shift: int, bound: int) -> tuple[int, ...]:
    """The dealers whose sketch says that their update's squared norm exceeds 1.2 bound²."""
    squares_N = gram_NN.diagonal() * unit_of(shift)
    return tuple(np.flatnonzero(squares_N > 1.2 * bound**2).tolist())
