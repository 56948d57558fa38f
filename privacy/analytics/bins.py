"""Histograms and most frequent categories: one counter a bin, the last for everything else.

Shape suffixes: R records, K counters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .answer import Estimate, Integers, estimate, too_few, withheld
from .query import Histogram, Top

OTHER = "other"


def encode(question: Histogram | Top, values_R: npt.NDArray[np.float64] | Sequence[str]) -> Integers:
    """How many records lie in each bin, int64; those in none are counted last."""
    if isinstance(question, Top):
        places = {category: place for place, category in enumerate(question.categories)}
        bins_R = np.array([places.get(str(value), len(places)) for value in values_R], np.int64)
        return np.bincount(bins_R, minlength=len(places) + 1).astype(np.int64)
    edges_K, numbers_R = np.array(question.edges), np.asarray(values_R, np.float64)
    bins_R = np.searchsorted(edges_K, numbers_R, side="right") - 1
    bins_R[numbers_R == edges_K[-1]] = len(edges_K) - 2
    bins_R[bins_R < 0] = len(edges_K) - 1
    return np.bincount(bins_R, minlength=len(edges_K)).astype(np.int64)


def labels(question: Histogram | Top) -> tuple[str, ...]:
    """What each counter is of."""
    if isinstance(question, Top):
        return (*question.categories, OTHER)
    edges = question.edges
    ends = [")"] * (len(edges) - 2) + ["]"]
    bins = zip(edges, edges[1:], ends, strict=False)
    return (*(f"[{low:g}, {high:g}{end}" for low, high, end in bins), OTHER)


def num_records(counters_K: Integers) -> float:
    """How many records were counted."""
    return float(counters_K.sum())


def decode(question: Histogram | Top, counters_K: Integers, deviation: float, withhold_below: int) -> list[Estimate]:
    """The bins in order, or the most frequent categories from the top.

    A bin with records, but fewer than ``withhold_below``, is not shown; nor are the next larger ones, until all that
    are not shown hold as many together. Else the total would tell what is hidden.
    """
    names, order = labels(question), np.argsort(-counters_K, kind="stable").tolist()
    if isinstance(question, Top):
        order = [place for place in order if place < len(question.categories)][: question.k]
    shown = [place for place in order if counters_K[place] >= max(withhold_below, 1)]
    while shown and too_few(num_records(counters_K) - num_records(counters_K[shown]), withhold_below):
        shown.pop()

    def bin_of(place: int) -> Estimate:
        if place in hidden:
            return withheld(names[place])
        return estimate(names[place], float(counters_K[place]), deviation=deviation, least=0.0)

    if isinstance(question, Top):
        hidden: set[int] = set()
        return [bin_of(place) for place in shown]
    hidden = set(np.flatnonzero(counters_K > 0).tolist()) - set(shown)
    return [bin_of(place) for place in range(len(names))]
