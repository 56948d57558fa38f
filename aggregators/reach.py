"""Far updates brought within reach, so that they cannot blind the arithmetic.

A rule that moves step by step asks how far an update x_i is from v = Σ λ_j x_j. With Σ λ_j = 1
that follows from the squared distances D alone:

    ‖v - x_i‖² = (D λ)_i - ½ λᵀ D λ.

One liar at 1e17 makes entries of 1e34 beside honest ones of 1, the difference loses every digit,
and the rule goes wherever rounding leads. So before the first step an update x_j at a distance R
beyond T from a centre c is replaced by

    y_j = c + (T / R) (x_j - c),

which pulls in the same direction: the rules that use this look at the direction of what is far,
and hardly at how far it is. Nor does D hold which direction that is once R is 1e5 times the
distances that count: the cosine is what is left of a difference of two numbers of size R², each
rounded in float32. It is therefore taken to be at right angles to every other update, as
almost all directions are where there are many parameters:

    ‖y_j - x_i‖² = T² + ‖c - x_i‖²,    ‖y_j - y_k‖² = 2 T².

What the rule then gives y_j is x_j's by the factor T / R, and the rest is the centre's. R may be
infinite; the factor is 0.

Shape suffixes: P points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Times the distances that count. Sums of float32 squares are good to about 1e-6 of R² whatever an
# attacker does, which at this ratio leaves a cosine with an error of a few hundredths.
REACH = 1e5


@dataclass(frozen=True, slots=True, eq=False)
class Reachable:
    """Points of which none is farther from the centre than the reach.

    Attributes:
        squared_PP: float64, their squared distances, all finite.
        factors_P: T / R of those that were brought nearer, 1 for the others.
        centre: the index of the centre.
    """

    squared_PP: npt.NDArray[np.float64]
    factors_P: npt.NDArray[np.float64]
    centre: int

    def squared_distances(self, weights_P: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """‖Σ λ_j y_j - y_i‖² of every point, for weights λ that sum to 1."""
        mixed_P = self.squared_PP @ weights_P
        return np.asarray(np.maximum(mixed_P - weights_P @ mixed_P / 2, 0))

    def given_back(self, weights_P: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The weights of the points as they were that give the same sum."""
        kept_P = weights_P * self.factors_P
        kept_P[self.centre] += np.sum(weights_P * (1 - self.factors_P))
        return kept_P


def within_reach(squared_PP: npt.NDArray[np.float64], centre: int, reach: float) -> Reachable:
    """Bring the points that are farther than ``reach`` from one of them within reach."""
    distances_P = np.sqrt(squared_PP[centre])
    far_P = distances_P > reach
    factors_P = np.ones_like(distances_P)
    factors_P[far_P] = reach / distances_P[far_P]
    from_centre_P = np.where(far_P, reach**2, squared_PP[centre])
    at_right_angles_PP = from_centre_P[:, None] + from_centre_P[None, :]
    nearer_PP = np.where(far_P[:, None] | far_P[None, :], at_right_angles_PP, squared_PP)
    np.fill_diagonal(nearer_PP, 0)
    return Reachable(nearer_PP, factors_P, centre)
