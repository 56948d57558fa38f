"""From a site's records to counters, and from the sum of everybody's counters to the answer.

Shape suffixes: R records, K counters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError, InvalidUpdate
from . import bins, moments, tree
from .answer import Answer, Integers, too_few
from .query import Count, Histogram, Mean, Part, Quantile, Query, Question, Sum, Top, Variance

Values = npt.NDArray[Any] | Sequence[Any]


def encode(query: Query, records: Mapping[str, Values], people_R: Values | None = None) -> Integers:
    """What this site adds to the sum: K counters, int64.

    A record without a value (None, NaN, "") is left out.

    Args:
        records: the columns that the query asks about, by name.
        people_R: whose record each is; without, each is of another person.

    Raises:
        ConfigError: a column is missing, holds text where numbers are asked for, or has not one value for each person;
            a record is of nobody.
        InvalidUpdate: there are more records than the query takes from a site.
    """
    counters_K = np.zeros(query.shape.num_counters, np.int64)
    for part in query.parts:
        counters_K[part.start : part.stop] = part.stretch * _encoded(query, part.question, records, people_R)
    return counters_K


def decode(query: Query, counters_K: Integers, *, deviation: float = 0.0) -> tuple[Answer, ...]:
    """The answers from the sum of the counters, in the order of the questions.

    Args:
        counters_K: int64, the sum over the sites.
        deviation: standard deviation of the noise in each counter; 0 without.
    """
    return tuple(_decoded(query, part, counters_K, deviation) for part in query.parts)


def num_records(query: Query, counters_K: Integers) -> tuple[float, ...]:
    """How many records were counted for each question; exactly, if there was no noise."""
    return tuple(_num_records(part.question, _own(part, counters_K)) for part in query.parts)


def _encoded(query: Query, question: Question, records: Mapping[str, Values], people_R: Values | None) -> Integers:
    if question.column not in records:
        raise ConfigError(f"there is no column {question.column!r}")
    column_R = _column(question, records[question.column])
    if people_R is not None and len(people_R) != len(column_R):
        raise ConfigError(f"column {question.column!r} has not one value for each value of the column of people")
    if people_R is not None and not _present(np.asarray(people_R)).all():
        raise ConfigError("a record is of nobody", hint="name a person for every record, or leave those out")
    present_R = _present(column_R)
    kept_R = column_R[present_R]
    if people_R is not None:
        kept_R = kept_R[_first_of_each(np.asarray(people_R)[present_R], query.records_per_person)]
    if len(kept_R) > query.max_records_per_site:
        raise InvalidUpdate(
            f"query {query.name!r} takes at most {query.max_records_per_site} records of a site, this one has more",
            hint="ask for a higher max_records_per_site",
        )
    match question:
        case Histogram() | Top():
            return bins.encode(question, kept_R)
        case Quantile():
            return tree.encode(question, kept_R)
        case Count() | Sum() | Mean() | Variance():
            return moments.encode(question, kept_R)
        case _:
            assert_never(question)


def _decoded(query: Query, part: Part, counters_K: Integers, deviation: float) -> Answer:
    question, own_K, least = part.question, _own(part, counters_K), query.withhold_below
    if part.stretch > 1:  # dividing rounds by half a record at most
        deviation = math.hypot(deviation / part.stretch, math.sqrt(1 / 12))
    match question:
        case Histogram() | Top():
            estimates = bins.decode(question, own_K, deviation, least)
        case Quantile():
            estimates = tree.decode(question, own_K, deviation, least)
        case Count() | Sum() | Mean() | Variance():
            estimates = moments.decode(question, own_K, deviation, least)
        case _:
            assert_never(question)
    num = _num_records(question, own_K)
    shown = None if too_few(num, least) else max(num, 0.0)
    return Answer(question.kind, question.column, tuple(estimates), shown)


def _own(part: Part, counters_K: Integers) -> Integers:
    """A question's counters, without the stretch."""
    own_K = counters_K[part.start : part.stop]
    return own_K if part.stretch == 1 else (own_K + part.stretch // 2) // part.stretch


def _num_records(question: Question, counters_K: Integers) -> float:
    match question:
        case Histogram() | Top():
            return bins.num_records(counters_K)
        case Quantile():
            return tree.num_records(counters_K)
        case Count() | Sum() | Mean() | Variance():
            return moments.num_records(question, counters_K)
        case _:
            assert_never(question)


def _column(question: Question, values_R: Values) -> npt.NDArray[Any]:
    """The values as numbers where the question is about numbers."""
    if isinstance(question, Count | Top):
        return np.array([*values_R, None], object)[:-1]
    if isinstance(values_R, np.ndarray) and values_R.dtype.kind in "biuf":
        return values_R.astype(np.float64)
    try:
        return np.array([np.nan if value is None else value for value in values_R], np.float64)
    except (ValueError, TypeError):
        raise ConfigError(
            f"column {question.column!r} holds something that is no number",
            hint='ask for kind = "top" of a column of categories',
        ) from None


def _present(column_R: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if column_R.dtype == np.float64:
        return np.asarray(~np.isnan(column_R))
    # NaN is not equal to itself.
    return np.array([value is not None and value != "" and value == value for value in column_R], np.bool_)


def _first_of_each(people: npt.NDArray[Any], at_most: int) -> npt.NDArray[np.intp]:
    """Places of the first records of each person. Which these are hangs on no other person."""
    _, person_R = np.unique(people, return_inverse=True)
    order = np.argsort(person_R, kind="stable")
    starts = np.searchsorted(person_R[order], person_R[order], side="left")
    return order[np.arange(len(order)) - starts < at_most]
