"""Centred clipping: from where the model was going, no update pulls harder than τ.

Shape suffixes: N updates, P = N + 1 points, the last of them the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .averaging import weighed
from .decision import Decision
from .geometry import Geometry
from .protocols import Reference, require_count, require_positive, require_updates
from .reach import REACH, within_reach


@dataclass(frozen=True, slots=True)
class CenteredClipping:
    """v ← v + (1/n) Σ (x_i - v) min(1, τ / ‖x_i - v‖), ``iterations`` times (Karimireddy, He & Jaggi 2021).

    It starts from the reference row, which is to be the last round's aggregate; without one, from
    the origin. ``clip`` is τ. What is farther than 1e5 τ from the start is brought within that
    reach. The weights of the updates need not sum to 1: the origin has the rest.

    Condition: n > 2f (for f None whatever n). The theorem wants more: f / n of at most about 0.1, a
    start near the honest mean, a τ that fits the updates' spread, and sites that send momentum.
    A single call moves at most ``iterations`` τ, so that it answers slowly to a start far off.

    Scores are the distances from the last v.

    Raises:
        ConfigError: f or ``iterations`` is no whole number, or ``clip`` is no positive one.
    """

    clip: float
    iterations: int = 1
    f: int | None = None
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "optional"

    def __post_init__(self) -> None:
        if self.f is not None:
            require_count("f", self.f)
        require_count("iterations", self.iterations, at_least=1)
        require_positive("clip", self.clip)

    def require(self, n: int) -> None:
        """n > 2f.

        Raises:
            TooFewUpdates: it is not.
        """
        f = self.f or 0
        require_updates(f"centered-clipping with f = {f}", n, 2 * f + 1, "n > 2f")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:  # noqa: ARG002 (not weighed)
        """The updates' weights in the last v, and the reference row's behind them if there is one.

        Raises:
            TooFewUpdates: n <= 2f.
        """
        n = geometry.num_updates
        self.require(n)
        used = [*range(n), n if geometry.num_references else -1]
        points = within_reach(geometry.squared_PP[np.ix_(used, used)], n, REACH * self.clip)
        weights_P = np.append(np.zeros(n), 1.0)
        for _ in range(self.iterations):
            distances_N = np.sqrt(points.squared_distances(weights_P)[:n])
            moves_N = self.clip / np.maximum(distances_N, self.clip) / n
            weights_P *= 1 - moves_N.sum()
            weights_P[:n] += moves_N
        distances_N = np.sqrt(points.squared_distances(weights_P)[:n])
        from_start_N = np.sqrt(geometry.squared_PP[used[-1], :n])
        scores_N = np.where(points.factors_P[:n] < 1, from_start_N, distances_N)
        weights_P = points.given_back(weights_P)
        return weighed(weights_P if geometry.num_references else weights_P[:n], scores_N)
