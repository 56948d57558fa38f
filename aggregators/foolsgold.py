"""FoolsGold: sites that have long pulled the same way count as one.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .averaging import weighed
from .cosine import cosines
from .decision import Decision
from .geometry import Geometry
from .protocols import Reference, require_count, require_updates

EPSILON = 1e-5  # the authors' code adds it to what is divided by and to what the logarithm is of
ALIKE = 1e-6  # 1 - cosine is no better than this where distances are sums of float32 squares


@dataclass(frozen=True, slots=True)
class FoolsGold:
    """Weights from how much each site's summed past updates resemble another's (Fung et al. 2020, algorithm 1).

    With v_i = max(0, max_j≠i cos_ij) and cos_ij multiplied by v_i / v_j where v_j > v_i (the
    pardon: an honest site that a Sybil resembles is the less alike of the two), α_i = 1 - max_j
    cos_ij, clipped to [0, 1] and divided by the largest; the weight is ln(α_i / (1 - α_i)) + ½, clipped
    to [0, 1]. The weights are then divided by their sum. Where every site is another's likeness
    the paper divides by 0; here all weigh the same, since none stands out.

    Condition: n > f, however many Sybils collude. It is made against those alone: a single liar
    counts fully, whatever the length of its update, and honest sites with the same data
    are taken for Sybils. A site whose sum is longer than float32 can square weighs nothing.

    Scores are 1 minus the weight before it is divided.

    Raises:
        ConfigError: f is no whole number from 0 on.
    """

    f: int | None = None
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "history"

    def __post_init__(self) -> None:
        if self.f is not None:
            require_count("f", self.f)

    def require(self, n: int) -> None:
        """n > f.

        Raises:
            TooFewUpdates: it is not.
        """
        f = self.f or 0
        require_updates(f"foolsgold with f = {f}", n, f + 1, "n > f")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:  # noqa: ARG002 (not weighed)
        """The updates' weights, from the geometry of their sites' summed updates.

        Raises:
            TooFewUpdates: n <= f.
        """
        n = geometry.num_updates
        self.require(n)
        alike_NN = cosines(geometry)[:n, :n]
        np.fill_diagonal(alike_NN, 0)
        most_N = alike_NN.max(axis=1) + EPSILON  # never below the 0 of the diagonal
        pardoned_NN = alike_NN * np.minimum(1, most_N[:, None] / most_N[None, :])
        apart_N = np.clip(1 - pardoned_NN.max(axis=1), 0, 1)
        apart_N[np.isinf(geometry.norms_N)] = 0  # too long to have a direction: nothing says that it is not alike
        if apart_N.max() < ALIKE:
            weights_N = np.ones(n)
        else:
            apart_N /= apart_N.max()
            with np.errstate(divide="ignore"):  # 1 becomes infinity, and that 1
                weights_N = np.clip(np.log(apart_N / (1 - apart_N) + EPSILON) + 0.5, 0, 1)
        return weighed(weights_N / weights_N.sum(), 1 - weights_N)
