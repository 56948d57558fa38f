"""Distances, and what a decision stands for, written as they are defined."""

from __future__ import annotations

import numpy as np
from foedus.aggregators.decision import Closest, Combination, Middle, WeightedSum
from foedus.aggregators.geometry import Geometry


def geometry(updates_ND: np.ndarray, references_RD: np.ndarray | None = None) -> Geometry:
    """Every squared distance in float64."""
    updates_ND = np.asarray(updates_ND, np.float64)
    if references_RD is None:
        references_RD = np.empty((0, updates_ND.shape[1]))
    points_PD = np.concatenate([updates_ND, np.atleast_2d(references_RD), np.zeros((1, updates_ND.shape[1]))])
    squared_PP = np.array([np.sum((points_PD - point_D) ** 2, axis=1) for point_D in points_PD])
    return Geometry(squared_PP, len(points_PD) - len(updates_ND) - 1)


def combined(combination: Combination, rows_ND: np.ndarray) -> np.ndarray:
    """The combination of rows, reference rows behind the updates, in float64."""
    rows_ND = np.asarray(rows_ND, np.float64)
    if isinstance(combination, WeightedSum):
        return combination.weights_N @ rows_ND[: len(combination.weights_N)]
    if combination.mix_MN is not None:
        rows_ND = combination.mix_MN @ rows_ND
    sorted_ND = np.sort(rows_ND[list(combination.taken)], axis=0)
    n = len(sorted_ND)
    match combination.statistic:
        case Middle(drop):
            return sorted_ND[drop : n - drop].mean(axis=0)
        case Closest(count):
            nearest_ND = np.argsort(np.abs(sorted_ND - np.median(sorted_ND, axis=0)), axis=0, kind="stable")
            return np.take_along_axis(sorted_ND, nearest_ND[:count], axis=0).mean(axis=0)


def uniform(n: int) -> np.ndarray:
    """Equal shares."""
    return np.full(n, 1 / n)
