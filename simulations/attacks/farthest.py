"""As far from the honest mean as distances allow (Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine").

Both send μ + γ p along a perturbation p, with the largest γ that keeps the row as close to the
honest updates as they are to each other. The authors search γ by halving; both bounds are
quadratic in γ, so that it has a closed form.

Shape suffixes: H honest updates, D parameters.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from ...errors import ConfigError
from .knowledge import Knowledge, Reals

Direction = Literal["unit", "std", "sign"]


def min_max(known: Knowledge, *, direction: Direction = "std") -> Reals:
    """max_i ‖μ + γp - x_i‖ <= max_ij ‖x_i - x_j‖.

    With r_i = μ - x_i and M the largest squared distance, each i bounds γ by
    (-⟨r_i, p⟩ + √(⟨r_i, p⟩² - ‖p‖² (‖r_i‖² - M))) / ‖p‖². Aims at every rule that looks at distances.

    Raises:
        ConfigError: there is no such direction.
    """
    p_D = perturbation(known, direction)
    squared_p = float(p_D @ p_D)
    if squared_p == 0:
        return known.mean
    # Where the honest rows are equal there is no room, and what is left of their mean is rounding.
    room_H = np.maximum(_squared_distances(known).max() - (known.centred**2).sum(axis=1), 0)
    along_H = -(known.centred @ p_D)
    gamma = np.min((-along_H + np.sqrt(along_H**2 + squared_p * room_H)) / squared_p)
    return np.asarray(known.mean + gamma * p_D)


def min_sum(known: Knowledge, *, direction: Direction = "std") -> Reals:
    """Σ_i ‖μ + γp - x_i‖² <= max_i Σ_j ‖x_i - x_j‖².

    γ² = (max_i Σ_j D_ij - Σ_i ‖x_i - μ‖²) / (H ‖p‖²), since Σ_i ⟨μ - x_i, p⟩ = 0. The more cautious
    of the two: closer to the honest updates as a whole. Aims at rules that sum distances.

    Raises:
        ConfigError: there is no such direction.
    """
    p_D = perturbation(known, direction)
    squared_p = float(p_D @ p_D)
    if squared_p == 0:
        return known.mean
    room = max(_squared_distances(known).sum(axis=1).max() - (known.centred**2).sum(), 0)
    return known.mean + math.sqrt(room / (len(known.honest_HD) * squared_p)) * p_D


def perturbation(known: Knowledge, direction: str) -> Reals:
    """p: -μ/‖μ‖ ("unit"), -σ ("std", the sample's, as in the authors' code) or -sign μ ("sign").

    Raises:
        ConfigError: there is no such direction.
    """
    match direction:
        case "unit":
            mean_D = known.mean
            return -mean_D / (np.linalg.norm(mean_D) or 1.0)
        case "std":
            return -known.std(ddof=1)
        case "sign":
            return -np.sign(known.mean)
    raise ConfigError(f"there is no direction {direction!r}", hint="choose unit, std or sign")


def _squared_distances(known: Knowledge) -> Reals:
    # About the mean, in float64: honest rows do not lie, so that nothing here is blown up to blind the rest.
    gram_HH = known.centred @ known.centred.T
    squares_H = np.diag(gram_HH)
    return np.maximum(squares_H[:, None] + squares_H[None, :] - 2 * gram_HH, 0.0)
