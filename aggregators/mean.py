"""The weighted mean of the updates.

Shape suffixes: N updates, D parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, InvalidUpdate, TooFewExamples
from .aggregate import Aggregate
from .engine import aggregate
from .rows import Rows


@dataclass(frozen=True, slots=True)
class Mean:
    """Δ = Σ p_k Δ_k (FedAvg: McMahan et al. 2017, algorithm 1, written for differences).

    With ``weighting`` "examples" p_k = min(n_k, max_examples) / Σ min(n_j, max_examples): the
    number of examples is what a site says of itself, so a cap bounds what a lie can gain. With
    "uniform" every update that rests on at least one example weighs the same.

    Raises:
        ConfigError: an unknown weighting, or a cap below 1.
    """

    weighting: Literal["examples", "uniform"] = "examples"
    max_examples: int | None = None

    def __post_init__(self) -> None:
        if self.weighting not in ("examples", "uniform"):
            raise ConfigError(f"weighting is {self.weighting!r}, expected 'examples' or 'uniform'")
        if self.max_examples is not None and self.max_examples < 1:
            raise ConfigError(f"max_examples is {self.max_examples}, expected at least 1")

    def weights(self, num_examples_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """What each of N updates weighs: float64, summing to 1; 0 for one that rests on no example.

        Raises:
            InvalidUpdate: a count is negative or not finite.
            TooFewExamples: all counts are 0, or there are none.
        """
        counts_N = np.asarray(num_examples_N, np.float64)
        if counts_N.ndim != 1:
            raise InvalidUpdate(f"the numbers of examples have shape {counts_N.shape}, expected one per update")
        for index, count in enumerate(counts_N):
            if not 0 <= count < math.inf:
                raise InvalidUpdate(f"update {index} claims to rest on {count:g} examples, expected 0 or more")
        if self.weighting == "uniform":
            shares_N = (counts_N > 0).astype(np.float64)
        else:
            shares_N = np.minimum(counts_N, math.inf if self.max_examples is None else self.max_examples)
        total = math.fsum(shares_N)  # exact: the same whatever the order of the sites
        if total == 0:
            raise TooFewExamples(
                f"the round's {counts_N.size} updates rest on no example at all",
                hint="check that the sites' data loaders find their data",
            )
        return shares_N / total

    def __call__(self, updates_ND: Rows | npt.ArrayLike, num_examples_N: npt.ArrayLike | None = None) -> Aggregate:
        """The mean of a row store or an N x D array, as ``engine.aggregate``."""
        return aggregate(self, updates_ND, num_examples_N)
