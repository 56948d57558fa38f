"""How well a score separates the diseased from the healthy. N patients."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.floating]


def accuracy(logits_N: Vector, disease_N: Vector) -> float:
    """The share of patients whose predicted class (logit above 0) is right."""
    return float(np.mean((logits_N > 0) == (disease_N > 0.5)))


def auc(scores_N: Vector, disease_N: Vector) -> float:
    """The chance that a diseased patient scores above a healthy one, ties counting half.

    The Mann-Whitney statistic; not a number where one of the two groups is empty.
    """
    diseased = disease_N > 0.5
    num_diseased, num_healthy = int(diseased.sum()), int((~diseased).sum())
    if not num_diseased or not num_healthy:
        return math.nan
    _, inverse, counts = np.unique(scores_N, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks_N = (ends - (counts - 1) / 2)[inverse]  # tied scores share their mean rank, from 1
    above = ranks_N[diseased].sum() - num_diseased * (num_diseased + 1) / 2
    return float(above / (num_diseased * num_healthy))
