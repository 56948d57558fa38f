"""Count, sum, mean and variance from sums of powers of whole steps.

With x the steps of a value from the middle of its range and X the most of them, a record adds (X, x), for a variance
(X², Xx, x²): every counter is stretched so that a record can add as much to each.

Shape suffixes: R records, K counters.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .answer import Estimate, Integers, estimate, too_few, withheld
from .query import Count, Mean, Sum, Variance


def encode(question: Count | Sum | Mean | Variance, values_R: npt.NDArray[np.float64]) -> Integers:
    """The counters of a site's records, int64."""
    num = len(values_R)
    if isinstance(question, Count):
        return np.array([num], np.int64)
    clipped_R = np.clip(values_R, question.low, question.high)
    steps_R = np.rint(clipped_R * question.scale).astype(np.int64) - question.centre
    most, total = question.largest, int(steps_R.sum())
    if isinstance(question, Variance):
        return np.array([most**2 * num, most * total, int(np.dot(steps_R, steps_R))], np.int64)
    return np.array([most * num, total], np.int64)


def num_records(question: Count | Sum | Mean | Variance, counters_K: Integers) -> float:
    """How many records were counted; exactly, if there was no noise."""
    if isinstance(question, Count):
        return float(counters_K[0])
    unit = question.largest**2 if isinstance(question, Variance) else question.largest
    return float(int(counters_K[0]) / unit)


def decode(
    question: Count | Sum | Mean | Variance, counters_K: Integers, deviation: float, withhold_below: int
) -> list[Estimate]:
    """The answer; withheld where it rests on too few records, or on a count that might as well be noise.

    Args:
        deviation: standard deviation of the noise in each counter, in steps.
    """
    num = num_records(question, counters_K)
    if too_few(num, withhold_below):
        return [withheld(question.kind)]
    if isinstance(question, Count):
        return [estimate("count", num, deviation=deviation, least=0.0)]
    if counters_K[0] <= 2 * deviation:  # the deviation of the first counter, which counts the records
        return [withheld(question.kind)]
    return [_decoded(question, counters_K, num, deviation)]


def _decoded(question: Sum | Mean | Variance, counters_K: Integers, num: float, deviation: float) -> Estimate:
    """Rounding moves a value by half a step at most. What noise does to quotients is worked out to first order."""
    most, half = question.largest, 0.5 / question.scale
    if isinstance(question, Sum):
        value = (question.centre * num + int(counters_K[1])) / question.scale
        spread = math.hypot(question.centre / most, 1) * deviation / question.scale
        return estimate("sum", value, error=num * half, deviation=spread)
    if isinstance(question, Mean):
        mean = int(counters_K[1]) / num
        spread = math.hypot(mean / most, 1) * deviation / (num * question.scale)
        value = (question.centre + mean) / question.scale
        return estimate("mean", value, error=half, deviation=spread, least=question.low, most=question.high)
    mean, square = int(counters_K[1]) / (most * num), int(counters_K[2]) / num
    value = max(0.0, square - mean**2) / question.scale**2
    slopes = (1.0, 2 * mean / most, (2 * mean**2 - square) / most**2)
    spread = math.hypot(*slopes) * deviation / (num * question.scale**2)
    return estimate("variance", value, error=half * (2 * math.sqrt(value) + half), deviation=spread, least=0.0)
