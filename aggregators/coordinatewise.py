"""The rules of one coordinate at a time: median, trimmed mean, mean around the median.

They look at no distance, and a site that lies in one coordinate alone is cut there and nowhere
else. Each coordinate may come from other sites, so that the result can be far from every update
where the sites' data differ; nearest-neighbour mixing before them helps.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .decision import Closest, Coordinatewise, Decision, Middle
from .protocols import Reference, require_count, require_updates


@dataclass(frozen=True, slots=True)
class Median:
    """Per coordinate the median, the mean of the two middle values if n is even (Yin et al. 2018, definition 1).

    Condition: n > 2f, for f None whatever n. Nothing else depends on f.

    Raises:
        ConfigError: f is no whole number from 0 on.
    """

    f: int | None = None
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "none"

    def __post_init__(self) -> None:
        if self.f is not None:
            require_count("f", self.f)

    def require(self, n: int) -> None:
        """n > 2f.

        Raises:
            TooFewUpdates: it is not.
        """
        f = self.f or 0
        require_updates(f"median with f = {f}", n, 2 * f + 1, "n > 2f")

    def decide(self, shares_N: npt.NDArray[np.float64]) -> Decision:
        """The middle value of each coordinate.

        Raises:
            TooFewUpdates: n <= 2f.
        """
        n = len(shares_N)
        self.require(n)
        return _over_all(Middle((n - 1) // 2), n)


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """Per coordinate the mean without the f smallest and the f largest values (Yin et al. 2018, definition 2).

    A whole number is trimmed, never a fraction of n rounded down.

    Condition: n > 2f.

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
        require_updates(f"trimmed-mean with f = {self.f}", n, 2 * self.f + 1, "n > 2f")

    def decide(self, shares_N: npt.NDArray[np.float64]) -> Decision:
        """The mean of the n - 2f middle values of each coordinate.

        Raises:
            TooFewUpdates: n <= 2f.
        """
        n = len(shares_N)
        self.require(n)
        return _over_all(Middle(self.f), n)


@dataclass(frozen=True, slots=True)
class MeanAroundMedian:
    """Per coordinate the mean of the n - f values closest to the median (Xie, Koyejo & Gupta 2018).

    Condition: n > 2f.

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
        require_updates(f"meamed with f = {self.f}", n, 2 * self.f + 1, "n > 2f")

    def decide(self, shares_N: npt.NDArray[np.float64]) -> Decision:
        """The mean of the n - f values closest to the median of each coordinate.

        Raises:
            TooFewUpdates: n <= 2f.
        """
        n = len(shares_N)
        self.require(n)
        return _over_all(Closest(n - self.f), n)


def _over_all(statistic: Middle | Closest, n: int) -> Decision:
    every = tuple(range(n))
    return Decision(Coordinatewise(statistic, every), every)
