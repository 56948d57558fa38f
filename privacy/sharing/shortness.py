"""The proof that a shared update is short, so that nothing wraps around modulo p.

Distances modulo p say nothing about a vector with entries of the size of p: two colluders can add u and v - u, with u
chosen so that every inner product stays as it was, and have v in the sum. So once the shares are fixed, 128 random
projections of every block are drawn, and the dealer shares the bits of each; that the bits are bits, and those of the
projection, is one polynomial that has to vanish at the data points. A block with an entry of 2^(w + 1) or more misses
the range of one projection with probability at least 1/2, so passes with 2^-128.

Shape suffixes: V vectors, N dealers, L columns of a block, K blocks, R = 128 projections, B = R (w + 1) bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError, InvalidUpdate
from .field import Elements, P, Stream, add, inner_products, multiply, negate, ternary_product, to_integers, uniform

PROJECTIONS: Final = 128
_WIDTH: Final = 1024  # columns of the projections that are drawn at once
_PER_BYTE: Final = 4

# The four entries that a byte stands for, from its low bits on: 00 -> 0, 01 -> 1, 10 -> -1, 11 -> 0.
_ENTRIES: Final = np.array([0.0, 1.0, -1.0, 0.0])[(np.arange(256)[:, None] >> np.arange(0, 8, 2)) & 3]


def width_for(bound: int, length: int) -> int:
    """w, so that every projection of an honest update of norm <= bound lies within ±2^w: ⌈log2 8B⌉.

    Honest updates miss that with probability at most 2e^-64.

    Raises:
        ConfigError: inner products of vectors of this length that pass could wrap around: length · 2^(2w + 2) >= 2^60.
    """
    width = (8 * bound - 1).bit_length()
    if length << (2 * width + 2) >= 1 << 60:
        raise ConfigError(
            f"updates of {length} values and norm up to {bound} could wrap around in the field of 2^61 - 1",
            hint="scale the updates down, so that their norm as integers is smaller",
        )
    return width


def projections(rows_VL: Elements, stream: Stream) -> Elements:
    """The V x R projections of vectors by the public ternary matrix of ``stream``.

    Its entries are 0 with probability 1/2, else ±1. The stream gives them for 1,024 columns at a time, row by row,
    four to a byte; the last ones go to the end of the byte in which they end.
    """
    return ternary_product(rows_VL, _matrix(rows_VL.shape[1], stream))


def bits_of(projections_KR: Elements, width: int) -> Elements:
    """The K x B bits, the lowest first, of the dealer's own projections plus 2^w.

    Raises:
        InvalidUpdate: a projection lies beyond ±2^w, so that the update is too long to be proved short.
    """
    shifted_KR = to_integers(projections_KR) + (1 << width)
    if (shifted_KR < 0).any() or (shifted_KR >= 2 << width).any():
        raise InvalidUpdate("the update is too long for its norm bound, so that no proof of it would hold")
    bits_KRW = (shifted_KR[:, :, None] >> np.arange(width + 1)) & 1
    return bits_KRW.astype(np.uint64).reshape(len(shifted_KR), -1)


def shortness_answers(
    projections_NR: Elements, bits_NB: Elements, masks_N: Elements, width: int, stream: Stream
) -> Elements:
    """What a holder answers for each of N dealers: shares of a polynomial that is 0 at the data points if all is well.

    Σ_r ρ'_r (projection_r + 2^w - Σ_t 2^t bit_rt) + Σ_b ρ''_b bit_b (bit_b - 1) + mask, with ρ' and ρ'' from the
    public ``stream``, drawn after the bits were fixed.

    Args:
        projections_NR: of the holder's shares. They are shares of the projections.
        bits_NB: the holder's shares of the bits.
        masks_N: the holder's shares of ``vanishing_masks``, one from each dealer.
    """
    dealers = len(projections_NR)
    linear = uniform(stream, 1, PROJECTIONS)
    quadratic = uniform(stream, 1, bits_NB.shape[1])
    powers = np.uint64(1) << np.arange(width + 1, dtype=np.uint64)
    numbers_NR = inner_products(bits_NB.reshape(-1, width + 1), powers[None, :]).reshape(dealers, PROJECTIONS)
    gaps_NR = add(add(projections_NR, np.uint64(1 << width)), negate(numbers_NR))
    unequal_N = inner_products(gaps_NR, linear)[:, 0]
    no_bits_N = inner_products(multiply(bits_NB, add(bits_NB, np.uint64(P - 1))), quadratic)[:, 0]
    return add(add(unequal_N, no_bits_N), masks_N)


def _matrix(columns: int, stream: Stream) -> Iterator[npt.NDArray[np.float64]]:
    for start in range(0, columns, _WIDTH):
        width = min(_WIDTH, columns - start)
        row_bytes = -(-width // _PER_BYTE)
        drawn = np.frombuffer(stream(PROJECTIONS * row_bytes), np.uint8)
        # A byte is always in range; to say so (clip) spares numpy the check, and most of the time.
        yield np.take(_ENTRIES, drawn, axis=0, mode="clip").reshape(PROJECTIONS, -1)[:, :width]
