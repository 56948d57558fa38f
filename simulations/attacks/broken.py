"""Values that break arithmetic rather than learning."""

from __future__ import annotations

import math

import numpy as np

from .knowledge import Knowledge, Reals


def non_finite(known: Knowledge, *, value: float = math.nan) -> Reals:
    """The honest mean with NaN (or ±infinity) in one parameter.

    Aims at rules that rely on the order of NaN, and at sums: one such value makes the whole
    parameter NaN. Foedus's site refuses to send it and its server to take it.
    """
    row_D = known.mean
    row_D[np.random.default_rng(known.seed).integers(len(row_D))] = value
    return row_D


def huge(known: Knowledge, *, value: float = 1e30) -> Reals:
    """±value in every parameter, against the sign of the honest mean.

    Finite, so that no check for NaN finds it, but its square is beyond float32. Aims at distances:
    infinite minus infinite is NaN.
    """
    return np.where(known.mean > 0, -value, value)
