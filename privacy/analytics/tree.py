"""Quantiles from a dyadic tree: counts of an interval, its halves, their halves, down to 2^h leaves.

With noise, the records up to a leaf are the sum of at most h counters instead of up to 2^h.

Shape suffixes: R records, K counters, level by level from the root.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .answer import TWO_SIDED_95_PERCENT, Estimate, Integers, withheld
from .query import Quantile


def encode(question: Quantile, values_R: npt.NDArray[np.float64]) -> Integers:
    """The counters of a site's records, clipped to the range, int64."""
    leaves = 2**question.height
    clipped_R = np.clip(values_R, question.low, question.high)
    position_R = np.floor((clipped_R - question.low) / (question.high - question.low) * leaves)
    leaf_R = np.minimum(position_R, leaves - 1).astype(np.int64)
    level = np.bincount(leaf_R, minlength=leaves).astype(np.int64)
    levels = [level]
    while len(level) > 1:
        level = level.reshape(-1, 2).sum(axis=1)
        levels.append(level)
    return np.concatenate(levels[::-1])


def num_records(counters_K: Integers) -> float:
    """How many records were counted."""
    return float(counters_K[0])


def decode(question: Quantile, counters_K: Integers, deviation: float, withhold_below: int) -> list[Estimate]:
    """The middle of the leaf in which the share of the records is reached, and its ends.

    Without noise the quantile (the ⌈qn⌉-th smallest value) lies in that leaf, half a leaf from the answer at most.
    A quantile with fewer than ``withhold_below`` records on either side is as good as one record: it is not shown.
    """
    num, width = num_records(counters_K), (question.high - question.low) / 2**question.height
    reach = TWO_SIDED_95_PERCENT * deviation * math.sqrt(question.height + 1)
    found = []
    for share in question.at:
        label = f"quantile {share:g}"
        if min(share, 1 - share) * num < max(withhold_below, 1):
            found.append(withheld(label))
            continue
        first, leaf, last = (_leaf(question.height, counters_K, share * num + off) for off in (-reach, 0.0, reach))
        low, high = question.low + first * width, question.low + (last + 1) * width
        found.append(Estimate(label, question.low + (leaf + 0.5) * width, low, high))
    return found


def _leaf(height: int, counters_K: Integers, rank: float) -> int:
    """The first leaf up to which so many records lie."""
    node, first = 0, (1 << height) - 1
    for _ in range(height):
        left = 2 * node + 1
        if counters_K[left] >= rank:
            node = left
        else:
            rank -= float(counters_K[left])
            node = left + 1
    return node - first
