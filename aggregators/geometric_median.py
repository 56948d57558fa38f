"""The geometric median: the point with the least sum of distances.

Shape suffixes: N updates, P points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .averaging import weighed
from .decision import Decision
from .geometry import Geometry
from .protocols import Reference, require_count, require_positive, require_updates
from .reach import REACH, within_reach


@dataclass(frozen=True, slots=True)
class GeometricMedian:
    """RFA: argmin_z Σ α_i ‖z - x_i‖, the α_i being the shares (Pillutla, Kakade & Harchaoui 2022, algorithm 2).

    Smoothed Weiszfeld steps, z ← Σ β_i x_i / Σ β_i with β_i = α_i / max(ν, ‖z - x_i‖), carried
    out on the weights of the updates. The centre is the update with more than half of the shares
    nearest to it, s is the distance within which they lie, and both are as robust as the median:
    there is an honest update within s of the centre. The steps begin near it, each update's pull
    on it bounded by s; ν is ``smoothing`` times s, so that the result scales with the updates; what
    is farther than 1e5 s is brought within that reach. Where more than half of the shares coincide
    (s = 0) that point is the median.

    Condition: n > 2f (for f None whatever n); with shares, less than half of them in liars' hands.
    It is one point for all coordinates: a liar gains a bounded shift that grows with the spread of
    the honest updates, so mix neighbours first where sites' data differ.

    Scores are the distances from the median.

    Raises:
        ConfigError: f or ``iterations`` is no whole number, or ``smoothing`` is not within 1e-12 and 1.
    """

    f: int | None = None
    iterations: int = 100
    smoothing: float = 1e-6
    weighable: ClassVar[bool] = True
    reference: ClassVar[Reference] = "none"

    def __post_init__(self) -> None:
        if self.f is not None:
            require_count("f", self.f)
        require_count("iterations", self.iterations, at_least=1)
        require_positive("smoothing", self.smoothing)
        if not 1e-12 <= self.smoothing <= 1:
            raise ConfigError(f"smoothing is {self.smoothing!r}, expected a number from 1e-12 to 1")

    def require(self, n: int) -> None:
        """n > 2f.

        Raises:
            TooFewUpdates: it is not.
        """
        f = self.f or 0
        require_updates(f"geometric-median with f = {f}", n, 2 * f + 1, "n > 2f")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:
        """The updates' weights in the median.

        Raises:
            TooFewUpdates: n <= 2f.
        """
        self.require(geometry.num_updates)
        squared_NN = geometry.squared_NN
        centre, scale = _majority(squared_NN, shares_N)
        from_centre_N = np.sqrt(squared_NN[centre])
        weights_N = np.zeros_like(shares_N)
        weights_N[centre] = 1
        if scale == 0 or math.isinf(scale):  # infinite: no majority lies together, there is no median to look for
            return weighed(weights_N, from_centre_N)
        points = within_reach(squared_NN, centre, REACH * scale)
        pulls_N = shares_N * np.minimum(1, scale / np.maximum(from_centre_N, scale))
        weights_N = pulls_N + (1 - pulls_N.sum()) * weights_N
        for _ in range(self.iterations):
            distances_N = np.sqrt(points.squared_distances(weights_N))
            weights_N = weiszfeld_step(distances_N, shares_N, self.smoothing * scale)
        distances_N = np.sqrt(points.squared_distances(weights_N))
        scores_N = np.where(points.factors_P < 1, from_centre_N, distances_N)
        return weighed(points.given_back(weights_N), scores_N)


def weiszfeld_step(
    distances_P: npt.NDArray[np.float64], shares_P: npt.NDArray[np.float64], smoothing: float
) -> npt.NDArray[np.float64]:
    """The next point's weights, from how far the points are from this one."""
    pulls_P = shares_P / np.maximum(distances_P, smoothing)
    return np.asarray(pulls_P / pulls_P.sum())


def _majority(squared_NN: npt.NDArray[np.float64], shares_N: npt.NDArray[np.float64]) -> tuple[int, float]:
    """The update with the shortest distance within which more than half of the shares lie, and that distance."""
    nearest_NN = np.argsort(squared_NN, axis=1, kind="stable")
    # More than half by more than rounding, so that two halves tie whatever their sums round to.
    enough_NN = np.cumsum(shares_N[nearest_NN], axis=1) > 0.5 + 1e-9
    farthest_N = np.take_along_axis(nearest_NN, enough_NN.argmax(axis=1)[:, None], axis=1)
    radii_N = np.sqrt(np.take_along_axis(squared_NN, farthest_N, axis=1)[:, 0])
    radii_N[shares_N == 0] = np.inf
    centre = int(np.argmin(radii_N))
    return centre, float(radii_N[centre])
