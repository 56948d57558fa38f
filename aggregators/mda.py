"""Minimum-diameter averaging: the n - f updates that lie closest together.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .averaging import mean_of
from .decision import Decision
from .geometry import Geometry
from .protocols import Reference, require_count, require_updates


@dataclass(frozen=True, slots=True)
class MinimumDiameter:
    """The mean of the n - f updates whose largest distance from each other is least (MDA: El Mhamdi et al. 2020).

    Exact: the diameter is found by bisection over the distances. That n - f updates lie within t
    of each other is to say that f can be left out so that of every pair farther apart than t one
    is gone: a vertex cover of at most f, found by branching. Of several such sets, the one that
    comes first by index.

    Condition: n > 2f. At worst the time grows exponentially with f; a hundred updates with f = 45
    have taken less than a tenth of a second whatever they were drawn from. A liar may sit anywhere
    within the honest diameter, so that it is no help where that is large.

    Scores are the largest distance to one of the chosen.

    Raises:
        ConfigError: f is no whole number from 0 on.
    """

    f: int
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "none"

    def __post_init__(self) -> None:
        require_count("f", self.f)

    def require(self, n: int) -> None:
        """n > 2f.

        Raises:
            TooFewUpdates: it is not.
        """
        require_updates(f"mda with f = {self.f}", n, 2 * self.f + 1, "n > 2f")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:  # noqa: ARG002 (not weighed)
        """The n - f updates of least diameter.

        Raises:
            TooFewUpdates: n <= 2f.
        """
        self.require(geometry.num_updates)
        squared_NN = geometry.squared_NN
        chosen = least_diameter(squared_NN, geometry.num_updates - self.f)
        return mean_of(chosen, np.sqrt(squared_NN[:, chosen].max(axis=1)))


def least_diameter(squared_NN: npt.NDArray[np.float64], count: int) -> list[int]:
    """The ``count`` points of least diameter, ascending; of several such sets, the first by index."""
    every = (1 << len(squared_NN)) - 1
    thresholds = np.unique(squared_NN)
    low, high, found = 0, len(thresholds) - 1, every  # no pair is farther apart than the largest distance
    while low < high:
        middle = (low + high) // 2
        kept = _apart_from_none(every, _far(squared_NN, thresholds[middle]), count)
        if kept is None:
            low = middle + 1
        else:
            high, found = middle, kept
    return _first(every, _far(squared_NN, thresholds[high]), count, found)


def _far(squared_NN: npt.NDArray[np.float64], threshold: float) -> list[int]:
    """For each point the set of those that are farther from it, as the bits of an integer."""
    bits = np.packbits(squared_NN > threshold, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in bits]


def _first(candidates: int, far: list[int], count: int, found: int) -> list[int]:
    """The first ``count`` candidates by index of which no two are far; ``found`` are some, maybe not the first."""
    chosen: list[int] = []
    for index in range(len(far)):
        if len(chosen) == count:
            break
        if not candidates >> index & 1:
            continue
        with_it = candidates & ~far[index]
        kept = found if found >> index & 1 else _apart_from_none(with_it, far, count)
        if kept is None:
            candidates &= ~(1 << index)
        else:
            candidates, found = with_it, kept
            chosen.append(index)
    return chosen


def _apart_from_none(candidates: int, far: list[int], count: int) -> int | None:
    """At least ``count`` of the candidates of which no two are far, as bits; None if there are not so many.

    Depth first, with a stack of its own: Python's would be too short for a thousand updates.
    """
    untried = [candidates]
    while untried:
        left = untried.pop()
        spare = left.bit_count() - count
        if spare < 0:
            continue
        # A point with one far point left may as well stay.
        degrees = [(far[index] & left).bit_count() if left >> index & 1 else 0 for index in range(len(far))]
        ranked = sorted(degrees, reverse=True)
        if ranked[0] == 0:
            return left
        if 2 * sum(ranked[:spare]) < sum(ranked):  # whatever is left out, a far pair stays
            continue
        worst = degrees.index(ranked[0])
        if 1 in ranked:
            untried.append(left & ~far[degrees.index(1)])
            continue
        if ranked[0] > 2:
            untried.append(left & ~far[worst])
        untried.append(left & ~(1 << worst))
    return None
