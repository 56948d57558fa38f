"""The weighted mean of the updates.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .decision import Decision, WeightedSum
from .protocols import Reference, require_updates


@dataclass(frozen=True, slots=True)
class Mean:
    """Δ = Σ p_k Δ_k (FedAvg: McMahan et al. 2017, algorithm 1, written for differences).

    It withstands no liar: one update moves it as far as it likes.
    """

    weighable: ClassVar[bool] = True
    reference: ClassVar[Reference] = "none"

    @property
    def f(self) -> int:
        """0: it withstands no liar."""
        return 0

    def require(self, n: int) -> None:
        """Raise TooFewUpdates unless there is an update to take the mean of."""
        require_updates("the mean", n, 1, "an update")

    def decide(self, shares_N: npt.NDArray[np.float64]) -> Decision:
        """Each update weighs its share."""
        return Decision(WeightedSum(shares_N), tuple(np.flatnonzero(shares_N).tolist()))
