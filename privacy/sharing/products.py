"""The Gram matrix of the dealers' vectors, from products of shares, and nothing about a block of them.

The products of shares lie on polynomials whose values at the data points are the blocks' inner products. Masks that
add up to 0 there, from more dealers than can collude, leave only the sums: with one honest mask, the polynomial that
is decoded is uniform among those of its sum.

Shape suffixes: N dealers, H holders who answered, L columns of a block, A = N (N + 1) / 2 pairs, Z dealers of masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .correction import agreed_values
from .field import Elements, Integers, Stream, add, inner_products, to_integers, total
from .packing import Packing


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """The inner products of the dealers' vectors.

    Attributes:
        gram_NN: int64, exact, symmetric.
        liars: holders whose answers differ from the rest's.
    """

    gram_NN: Integers
    liars: tuple[int, ...]


def pair_count(dealers: int) -> int:
    """A, the number of masks that a dealer of masks deals: one for each pair a <= b."""
    return dealers * (dealers + 1) // 2


def product_answers(shares_NL: Elements, masks_ZA: Elements) -> Elements:
    """What a holder answers: the masked products of its shares of each two vectors, ordered as ``np.triu_indices``."""
    pairs = np.triu_indices(len(shares_NL))
    return add(inner_products(shares_NL, shares_NL)[pairs], total(masks_ZA))


def assembled(
    packing: Packing, dealers: int, holders: Sequence[int], answers_HA: Elements, stream: Stream
) -> Products | None:
    """The Gram matrix of N dealers, from the answers of H holders; None if more than E of them are wrong.

    Args:
        stream: private randomness of whoever decodes.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    agreed = agreed_values(packing, holders, answers_HA, packing.product_degree, stream)
    if agreed is None:
        return None
    values_KA, liars = agreed
    gram_NN = np.zeros((dealers, dealers), np.int64)
    gram_NN[np.triu_indices(dealers)] = to_integers(total(values_KA))
    return Products(gram_NN + np.triu(gram_NN, 1).T, liars)
