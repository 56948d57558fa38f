"""Far updates brought within reach, so that they cannot blind the arithmetic.

A rule that moves step by step asks how far an update x_i is from v = Σ λ_j x_j. With Σ λ_j = 1
that follows from the squared distances D alone:

    ‖v - x_i‖² = (D λ)_i - ½ λᵀ D λ.

One liar at 1e17 makes entries of 1e34 beside honest ones of 1, the difference loses every digit,
and the rule goes wherever rounding leads. So before the first step an update x_j at a distance R
beyond T from a centre c is replaced by

    y_j = c + (T / R) (x_j - c),

which pulls in the same direction: the rules that use this look at the direction of what is far,
and hardly at how far it is. What such a rule then gives y_j is x_j's by the factor T / R, and the
rest is the centre's. R may be infinite; the factor is 0.

The distances of y_j follow from inner products about the centre,

    ⟨x_i - c, x_j - c⟩ = (D_ci + D_cj - D_ij) / 2.

They too are differences of numbers of size R², and beyond some R no more than rounding, which a
liar may steer. Each is therefore held to what an angle can be, at most the product of the two
lengths, and is 0 where a distance is infinite: an unknown direction is still the direction of one
update, with no more pull than it is due.

Shape suffixes: P points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# T, in units of the distances that count: D is then 1e10 of their squares at most, which leaves float64 six digits.
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
    squared_P = squared_PP[centre]
    lengths_P = np.sqrt(squared_P)
    far_P = lengths_P > reach
    factors_P = np.ones_like(lengths_P)
    factors_P[far_P] = reach / lengths_P[far_P]
    lengths_P = np.minimum(lengths_P, reach)
    with np.errstate(invalid="ignore"):  # of an infinity and another
        inner_PP = (squared_P[:, None] + squared_P[None, :] - squared_PP) / 2
    inner_PP = np.where(np.isfinite(inner_PP), inner_PP, 0) * np.outer(factors_P, factors_P)
    most_PP = np.outer(lengths_P, lengths_P)
    nearer_PP = np.add.outer(lengths_P**2, lengths_P**2) - 2 * np.clip(inner_PP, -most_PP, most_PP)
    nearer_PP = np.where(np.logical_or.outer(far_P, far_P), nearer_PP, squared_PP)
    np.fill_diagonal(nearer_PP, 0)
    return Reachable(nearer_PP, factors_P, centre)
