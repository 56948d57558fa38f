"""From inner products to what a rule decides by, and from what it decides to integer weights.

Shape suffixes: N dealers, P = N + 1 points, the last of them the origin.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError
from .field import Integers

WEIGHT_BITS: Final = 10


def implausible(gram_NN: Integers, limit: int, others: int) -> tuple[int, ...]:
    """The dealers whose inner products are none of short vectors with squared norms up to ``limit``.

    A dealer's own square must lie within 0 and the limit, and its products with at least ``others`` of the others
    must be of at most that size and give a distance that is not negative. Pass N - 1 where every vector was proved
    short, and N - f - 1 where f dealers may have spoilt their products with the honest.
    """
    pairs_NN = _plausible_pairs(gram_NN, limit) & ~np.eye(len(gram_NN), dtype=bool)
    plausible_N = _plausible_squares(gram_NN, limit) & (pairs_NN.sum(axis=1) >= others)
    return tuple(np.flatnonzero(~plausible_N).tolist())


def squared_distances(gram_NN: Integers, limit: int, unit: float = 1.0) -> npt.NDArray[np.float64]:
    """The squared distances between N vectors and the origin, P x P, as ``aggregators.Geometry`` takes them.

    Whoever has an implausible square is infinitely far from everybody, and so are two with an implausible product
    from each other: what is claimed must bring nobody nearer.

    Args:
        limit: the largest plausible square and product.
        unit: what one unit of the integer squares stands for.
    """
    squares_N = gram_NN.diagonal()
    own_N = _plausible_squares(gram_NN, limit)
    distances_NN = (squares_N[:, None] + squares_N - 2 * gram_NN) * unit
    squared_PP = np.full((len(gram_NN) + 1, len(gram_NN) + 1), np.inf)
    np.copyto(squared_PP[:-1, :-1], distances_NN, where=_plausible_pairs(gram_NN, limit) & own_N & own_N[:, None])
    np.copyto(squared_PP[-1, :-1], squares_N * unit, where=own_N)
    squared_PP[:-1, -1] = squared_PP[-1, :-1]
    np.fill_diagonal(squared_PP, 0)
    return squared_PP


def integer_weights(weights_N: npt.NDArray[np.float64]) -> Integers:
    """Weights as whole numbers in proportion: the largest 2^10, each rounded to the nearest, then by their divisor.

    So weights that are alike are all 1.

    Raises:
        ConfigError: a weight is negative or not finite, or none is positive.
    """
    largest = weights_N.max(initial=0.0)
    if not (np.isfinite(weights_N).all() and weights_N.min(initial=0.0) >= 0 and largest > 0):
        raise ConfigError("secure sums take finite weights from 0 on, at least one of them positive")
    whole_N = np.rint(weights_N * ((1 << WEIGHT_BITS) / largest)).astype(np.int64)
    return np.asarray(whole_N // np.gcd.reduce(whole_N))


def hides_enough(weights_N: Integers, least: int) -> bool:
    """Whether weights lie within 0 and 2^10 and mix as much as ``least`` equal ones would: (Σw)² >= least · Σw²."""
    weights = weights_N.tolist()
    in_range = all(0 <= weight <= 1 << WEIGHT_BITS for weight in weights)
    return in_range and any(weights) and sum(weights) ** 2 >= least * sum(weight**2 for weight in weights)


def _plausible_squares(gram_NN: Integers, limit: int) -> npt.NDArray[np.bool_]:
    squares_N = gram_NN.diagonal()
    return np.asarray((squares_N >= 0) & (squares_N <= limit))


def _plausible_pairs(gram_NN: Integers, limit: int) -> npt.NDArray[np.bool_]:
    squares_N = gram_NN.diagonal()
    return np.asarray((np.abs(gram_NN) <= limit) & (squares_N[:, None] + squares_N >= 2 * gram_NN))
