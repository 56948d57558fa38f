"""Krum and Multi-Krum: the updates whose neighbours are nearest.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import TooFewExamples
from .averaging import mean_of, weighed
from .decision import Decision
from .geometry import Geometry
from .protocols import Reference, require_count, require_updates


@dataclass(frozen=True, slots=True)
class Krum:
    """The update with the lowest score (Blanchard et al. 2017, "The Krum function").

    s(i) = Σ ‖x_i - x_j‖² over the n - f - 2 updates j ≠ i nearest to i; of equal scores, the lowest index.

    Condition: n >= 2f + 3. That is when the rule may be used, not how much it withstands: the
    proof also wants the mean update to exceed √d times the spread of the honest ones times a
    factor that grows with n. One update out of n is as noisy as one update, so Krum is not for
    sites whose data differ; and n - f - 1 equal updates score 0 and win.

    Raises:
        ConfigError: f is no whole number from 0 on.
    """

    f: int
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "none"

    def __post_init__(self) -> None:
        require_count("f", self.f)

    def require(self, n: int) -> None:
        """n >= 2f + 3.

        Raises:
            TooFewUpdates: it is not.
        """
        require_updates(f"krum with f = {self.f}", n, 2 * self.f + 3, "n >= 2f + 3")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:  # noqa: ARG002 (one is chosen)
        """The one update with the lowest score.

        Raises:
            TooFewUpdates: there are fewer than 2f + 3.
        """
        self.require(geometry.num_updates)
        scores_N = krum_scores(geometry.squared_NN, geometry.num_updates - self.f - 2)
        return mean_of([int(np.argmin(scores_N))], scores_N)


@dataclass(frozen=True, slots=True)
class MultiKrum:
    """The mean of the m updates with the lowest Krum scores, all from one scoring (Blanchard et al. 2017).

    ``m`` None stands for n - f - 2, the most there can be. With shares, the chosen are
    averaged by their shares; a liar among them who claims a great share then owns the result. One
    that has no share gives up its place to the next of the n - f - 2.

    Condition: n >= 2f + 3 and 1 <= m <= n - f - 2.

    Raises:
        ConfigError: f or m is no whole number, or out of range.
    """

    f: int
    m: int | None = None
    weighable: ClassVar[bool] = True
    reference: ClassVar[Reference] = "none"

    def __post_init__(self) -> None:
        require_count("f", self.f)
        if self.m is not None:
            require_count("m", self.m, at_least=1)

    def require(self, n: int) -> None:
        """n >= 2f + 3 and n >= m + f + 2.

        Raises:
            TooFewUpdates: it is not.
        """
        require_updates(f"multi-krum with f = {self.f}", n, 2 * self.f + 3, "n >= 2f + 3")
        if self.m is not None:
            name = f"multi-krum with f = {self.f} and m = {self.m}"
            require_updates(name, n, self.m + self.f + 2, "m <= n - f - 2")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:
        """The m updates with the lowest scores, by their shares.

        Raises:
            TooFewUpdates: there are too few for f or m.
            TooFewExamples: the n - f - 2 lowest have no share at all.
        """
        n = geometry.num_updates
        self.require(n)
        neighbours = n - self.f - 2
        scores_N = krum_scores(geometry.squared_NN, neighbours)
        trusted = np.argsort(scores_N, kind="stable")[:neighbours]
        chosen = trusted[shares_N[trusted] > 0][: self.m]
        if not chosen.size:
            raise TooFewExamples(
                f"the {neighbours} updates that multi-krum trusts most rest on no example at all",
                hint="check that the sites' data loaders find their data",
            )
        weights_N = np.zeros(n)
        weights_N[chosen] = shares_N[chosen] / shares_N[chosen].sum()
        return weighed(weights_N, scores_N)


def krum_scores(squared_NN: npt.NDArray[np.float64], neighbours: int) -> npt.NDArray[np.float64]:
    """For each update the sum of its squared distances to the ``neighbours`` nearest others."""
    others_NN = squared_NN.copy()
    np.fill_diagonal(others_NN, np.inf)  # by index: the nearest of a row need not be the row itself
    others_NN.sort(axis=1)
    return np.asarray(others_NN[:, :neighbours].sum(axis=1))
