"""A weighted sum of the dealers' vectors, from the sums of the shares.

Shape suffixes: N dealers, H holders who answered, L columns of a block, D values of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import InvalidUpdate
from .correction import agreed_values
from .field import Elements, Integers, Stream, matrix_product, to_integers
from .packing import Packing


@dataclass(frozen=True, slots=True, eq=False)
class WeightedSum:
    """Σ w_i x_i.

    Attributes:
        sum_D: int64, exact.
        liars: holders whose answers differ from the rest's.
    """

    sum_D: Integers
    liars: tuple[int, ...]


def sum_answers(shares_NL: Elements, weights_N: Integers) -> Elements:
    """What a holder answers, L elements: Σ w_i f_i over its shares, for integer weights from 0 on."""
    return np.asarray(matrix_product(weights_N.astype(np.uint64)[None, :], shares_NL)[0])


def summed(
    packing: Packing, length: int, bound: int, holders: Sequence[int], answers_HL: Elements, stream: Stream
) -> WeightedSum | None:
    """The sum of vectors of this length, from the answers of H holders; None if more than E of them are wrong.

    Args:
        bound: what no entry of a sum of short vectors exceeds: Σ w_i times their norm bound.
        stream: private randomness of whoever decodes.

    Raises:
        InvalidUpdate: an entry exceeds it, so that a vector in the sum was not short.
        QuorumNotMet: too few holders answered.
    """
    agreed = agreed_values(packing, holders, answers_HL, packing.degree, stream)
    if agreed is None:
        return None
    values_KL, liars = agreed
    sum_D = to_integers(values_KL.reshape(-1)[:length])
    if (np.abs(sum_D) > bound).any():
        raise InvalidUpdate(f"an entry of the sum exceeds {bound}; an update in it was not short")
    return WeightedSum(sum_D, liars)
