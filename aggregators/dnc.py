"""Divide and conquer: drop the updates that stand out along the direction in which they differ most.

Shape suffixes: N updates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .averaging import mean_of
from .decision import Decision
from .geometry import Geometry
from .protocols import Reference, require_count, require_positive, require_updates


@dataclass(frozen=True, slots=True)
class DivideAndConquer:
    """The mean of the updates that no sample gives away (DnC: Shejwalkar & Houmansadr 2021, algorithm 2).

    ``iterations`` times, over a random sample of ``coordinates``: with the rows centred on their
    mean and u the top left singular vector, the outlier score of update i is (σ₁ u_i)², its squared
    projection on the direction in which the updates differ most. The c f with the highest scores
    are dropped, c f rounded up, of equal scores the highest index. The paper keeps who is left in
    every sample; that can be nobody, so it is who is left in the most samples, which is the same
    wherever somebody is left in all.

    Condition: n > 2f and n > c f; there is no theorem without an assumption on the honest
    covariance. One update far enough off is the top direction all by itself, and hides a second
    one, so bound the norms before it.

    Scores are the outlier scores, averaged over the samples.

    Raises:
        ConfigError: f, ``iterations`` or ``coordinates`` is no whole number, or c no positive one.
    """

    f: int
    iterations: int = 1
    c: float = 1.0
    coordinates: int = 10_000
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "none"

    def __post_init__(self) -> None:
        require_count("f", self.f)
        require_count("iterations", self.iterations, at_least=1)
        require_count("coordinates", self.coordinates, at_least=1)
        require_positive("c", self.c)

    @property
    def samples(self) -> int:
        """One per iteration."""
        return self.iterations

    @property
    def num_dropped(self) -> int:
        """How many updates each sample drops."""
        return math.ceil(round(self.c * self.f, 9))  # 1.1 * 10 is 11.000000000000002

    def require(self, n: int) -> None:
        """n > 2f and n > c f.

        Raises:
            TooFewUpdates: it is not.
        """
        require_updates(f"dnc with f = {self.f}", n, 2 * self.f + 1, "n > 2f")
        require_updates(f"dnc with f = {self.f} and c = {self.c:g}", n, self.num_dropped + 1, "n > c f")

    def judge_samples(self, geometries: Sequence[Geometry], shares_N: npt.NDArray[np.float64]) -> Decision:
        """Who is left in the most samples.

        Raises:
            TooFewUpdates: there are too few for f or c.
        """
        n = len(shares_N)
        self.require(n)
        scores_SN = np.array([outlier_scores(geometry.squared_NN) for geometry in geometries])
        left_SN = np.argsort(scores_SN, axis=1, kind="stable")[:, : n - self.num_dropped]
        times_left_N = np.bincount(left_SN.ravel(), minlength=n)
        chosen = np.flatnonzero(times_left_N == times_left_N.max())
        return mean_of(chosen.tolist(), scores_SN.mean(axis=0))


def outlier_scores(squared_NN: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The squared projection of each row, less the mean row, on the direction in which the rows differ most.

    The inner products of the centred rows are -½ J D J with J = 1 - 1/n, their top eigenvalue is
    σ₁² and its vector u. An infinite distance counts as 1e5 times the largest finite one: far enough
    to be the top direction, near enough to leave digits for the others.
    """
    finite_NN = squared_NN[np.isfinite(squared_NN)]
    squared_NN = np.minimum(squared_NN, 1e10 * (finite_NN.max() or 1.0))
    centred_NN = squared_NN - squared_NN.mean(axis=0)
    values, vectors = np.linalg.eigh((centred_NN - centred_NN.mean(axis=1, keepdims=True)) / -2)
    return np.asarray(max(values[-1], 0) * vectors[:, -1] ** 2)
