"""FLTrust: each update is trusted as far as it agrees with one that the server knows to be good.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import InvalidUpdate
from .averaging import weighed
from .cosine import cosines
from .decision import Decision
from .geometry import Geometry
from .protocols import Reference, require_count, require_updates


@dataclass(frozen=True, slots=True)
class FLTrust:
    """Σ t_i (‖g_0‖ / ‖g_i‖) g_i / Σ t_i with t_i = max(0, cos(g_i, g_0)) (Cao et al. 2021, equations 2 to 4).

    g_0 is the reference row: an update trained on clean data of the server's own, about a hundred
    examples like those of the sites. Every update counts with the length of g_0. Where no update is
    trusted the result is the zero update: all weights are 0.

    Condition: n > f, however many lie; what holds the rule up is g_0. It states no bound for a
    round, and a liar orthogonal to g_0 but for a little is trusted that little at full length. A
    row of norm 0, and one more than 1e5 times longer or shorter than g_0, is not trusted.

    Scores are 1 - t_i.

    Raises:
        ConfigError: f is no whole number from 0 on.
    """

    f: int | None = None
    weighable: ClassVar[bool] = False
    reference: ClassVar[Reference] = "required"

    def __post_init__(self) -> None:
        if self.f is not None:
            require_count("f", self.f)

    def require(self, n: int) -> None:
        """n > f.

        Raises:
            TooFewUpdates: it is not.
        """
        f = self.f or 0
        require_updates(f"fltrust with f = {f}", n, f + 1, "n > f")

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:  # noqa: ARG002 (not weighed)
        """The updates' trust, rescaled.

        Raises:
            TooFewUpdates: n <= f.
            InvalidUpdate: there is not exactly one reference row.
        """
        n = geometry.num_updates
        self.require(n)
        if geometry.num_references != 1:
            raise InvalidUpdate(f"fltrust got {geometry.num_references} reference rows, expected the server's update")
        trust_N = np.maximum(cosines(geometry)[:n, n], 0)
        trusted_N = trust_N > 0
        weights_N = np.zeros(n)
        lengths = geometry.norms_N[trusted_N]
        weights_N[trusted_N] = trust_N[trusted_N] / trust_N.sum() * np.sqrt(geometry.squared_PP[n, -1]) / lengths
        return weighed(weights_N, 1 - trust_N)
