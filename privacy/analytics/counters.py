"""From a site's records to counters, and from the sum of everybody's counters to the answer.

Shape suffixes: R records, K counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError, InvalidUpdate
from . import bins, moments, tree
from .answer import Answer, Integers, too_few
from .query import Count, Histogram, Mean, Quantile, Query, Sum, Top, Variance

Values = npt.NDArray[Any] | Sequence[Any]


def encode(query: Query, values_R: Values, people_R: Values | None = None) -> Integers:
    """What this site adds to the sum: K counters, int64.

    A record without a value (None, NaN, "") is left out.

    Args:
        values_R: the column that the query asks about.
        people_R: whose record each is; without, each is of another person.

    Raises:
        ConfigError: the column holds text where numbers are asked for, or the lengths differ.
        InvalidUpdate: there are more records than the query takes from a site.
    """
    column_R = _column(query, values_R)
    if people_R is not None and len(people_R) != len(column_R):
        raise ConfigError(f"{len(column_R)} records are of {len(people_R)} people, expected as many")
    present_R = _present(column_R)
    kept_R = column_R[present_R]
    if people_R is not None:
        kept_R = kept_R[_first_of_each(np.asarray(people_R)[present_R], query.records_per_person)]
    if len(kept_R) > query.max_records_per_site:
        raise InvalidUpdate(
            f"query {query.name!r} takes at most {query.max_records_per_site} records of a site, this one has "
            f"{len(kept_R)}",
            hint="ask for a higher max_records_per_site",
        )
    match query.question:
        case Histogram() | Top() as question:
            return bins.encode(question, kept_R)
        case Quantile() as question:
            return tree.encode(question, kept_R)
        case Count() | Sum() | Mean() | Variance() as question:
            return moments.encode(question, kept_R)
        case _:
            assert_never(query.question)


def decode(query: Query, counters_K: Integers, *, num_sites: int, deviation: float = 0.0) -> Answer:
    """The answer from the sum of the counters.

    Args:
        counters_K: int64, the sum over the sites.
        num_sites: of how many.
        deviation: standard deviation of the noise in each counter; 0 without.
    """
    question, least = query.question, query.withhold_below
    match question:
        case Histogram() | Top():
            num, estimates = bins.num_records(counters_K), bins.decode(question, counters_K, deviation, least)
        case Quantile():
            num, estimates = tree.num_records(counters_K), tree.decode(question, counters_K, deviation, least)
        case Count() | Sum() | Mean() | Variance():
            num = moments.num_records(question, counters_K)
            estimates = moments.decode(question, counters_K, deviation, least)
        case _:
            assert_never(question)
    return Answer(tuple(estimates), None if too_few(num, least) else max(num, 0.0), num_sites)


def _column(query: Query, values_R: Values) -> npt.NDArray[Any]:
    """The values as numbers where the question is about numbers."""
    if isinstance(query.question, Count | Top):
        return np.array([*values_R, None], object)[:-1]
    if isinstance(values_R, np.ndarray) and values_R.dtype.kind in "biuf":
        return values_R.astype(np.float64)
    try:
        return np.array([np.nan if value is None else value for value in values_R], np.float64)
    except (ValueError, TypeError):
        raise ConfigError(
            f"column {query.question.column!r} holds something that is no number",
            hint='ask for kind = "top" of a column of categories',
        ) from None


def _present(column_R: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if column_R.dtype == np.float64:
        return np.asarray(~np.isnan(column_R))
    # NaN is not equal to itself.
    return np.array([value is not None and value != "" and value == value for value in column_R], np.bool_)


def _first_of_each(people: npt.NDArray[Any], at_most: int) -> npt.NDArray[np.intp]:
    """Places of the first records of each person, in their order. Which these are hangs on no other person."""
    _, person_R = np.unique(people, return_inverse=True)
    order = np.argsort(person_R, kind="stable")
    starts = np.searchsorted(person_R[order], person_R[order], side="left")
    return np.sort(order[np.arange(len(order)) - starts < at_most])
