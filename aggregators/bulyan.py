"""Bulyan: Krum chooses, then each coordinate is averaged around its median.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .decision import Closest, Coordinatewise, Decision
from .geometry import Geometry
from .krum import krum_scores
from .protocols import Reference, require_count, require_updates


@dataclass(frozen=True, slots=True)
class Bulyan:
    """Per coordinate the mean of the θ - 2f values closest to the median of θ chosen updates.

    El Mhamdi, Guerraoui & Rouault 2018. The θ are chosen one by one, without replacement: each time
    Krum's choice among the r updates that are left, with r - f - 2 neighbours (at least 1), so
    that the scores change with every choice. Choosing the θ lowest scores at once is another rule.

    ``selections`` is θ:

    - "n-2f-2", the authors' own code: every choice has at least 2f + 3 updates to choose from,
      which is Krum's condition.
    - "n-2f", as published: the last choice is among 2f + 1 updates by f - 1 neighbours, so that f
      equal liars score 0 and one of them is chosen. The second stage still holds it in check.

    Condition: n >= 4f + 3 for both; the second stage then averages at least 1 or 3 values. Of
    few updates little is left to average, so it is noisy where n is close to 4f + 3.

    Scores are Krum's over all n updates.

    Raises:
        ConfigError: f is no whole number from 0 on, or ``selections`` is neither of the two.
    """

    f: int
    selections: Literal["n-2f-2", "n-2f"] = "n-2f-2"
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "none"

    def __post_init__(self) -> None:
        require_count("f", self.f)
        if self.selections not in ("n-2f-2", "n-2f"):
            raise ConfigError(f"selections is {self.selections!r}, expected 'n-2f-2' or 'n-2f'")

    def require(self, n: int) -> None:
        """n >= 4f + 3.

        Raises:
            TooFewUpdates: it is not.
        """
        require_updates(f"bulyan with f = {self.f}", n, 4 * self.f + 3, "n >= 4f + 3")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:  # noqa: ARG002 (not weighed)
        """The chosen updates, to be averaged coordinate by coordinate.

        Raises:
            TooFewUpdates: there are fewer than 4f + 3.
        """
        n = geometry.num_updates
        self.require(n)
        theta = n - 2 * self.f - (2 if self.selections == "n-2f-2" else 0)
        chosen = tuple(sorted(self._chosen(geometry.squared_NN, theta)))
        scores_N = krum_scores(geometry.squared_NN, n - self.f - 2)
        return Decision(Coordinatewise(Closest(theta - 2 * self.f), chosen), chosen, scores_N)

    def _chosen(self, squared_NN: npt.NDArray[np.float64], theta: int) -> list[int]:
        left, chosen = list(range(len(squared_NN))), []
        for _ in range(theta):
            scores = krum_scores(squared_NN[np.ix_(left, left)], max(1, len(left) - self.f - 2))
            chosen.append(left.pop(int(np.argmin(scores))))
        return chosen
