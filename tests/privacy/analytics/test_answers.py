"""Counters and what they come to, against the records themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from foedus.errors import ConfigError, InvalidUpdate
from foedus.privacy.analytics.answer import Answer, Answers
from foedus.privacy.analytics.counters import Values, decode, encode, num_records
from foedus.privacy.analytics.query import Query
from hypothesis import given, settings
from hypothesis import strategies as st

AGES = [np.array([30.0, 41.0, 55.0]), np.array([18.0, 30.0]), np.array([92.0]), np.array([41.0, 66.0, 70.0])]
ALL = np.concatenate(AGES)


def query(kind: str, **fields: Any) -> Query:
    """A query with no floor, so that a test sees what is counted."""
    outer = {name: fields.pop(name) for name in list(fields) if name in Query.model_fields}
    question = {"kind": kind, "column": "age"} | fields
    return Query.model_validate({"name": "q", "withhold_below": 0, "question": question} | outer)


def counted(asked: Query, values: Values, people: Values | None = None) -> np.ndarray:
    return encode(asked, {"age": values}, people)


def answered(asked: Query, sites: list[Values], deviation: float = 0.0) -> Answer:
    total = np.sum([counted(asked, values) for values in sites], axis=0)
    (found,) = decode(asked, total, deviation=deviation)
    return found


def only(asked: Query, sites: list[Values]) -> float:
    (found,) = answered(asked, sites).estimates
    assert found.value is not None
    return found.value


def test_what_eight_and_one_people_come_to() -> None:
    whole = {"low": 0, "high": 120}
    assert only(query("count"), AGES) == 9
    assert only(query("sum", **whole), AGES) == 443
    assert only(query("mean", **whole), AGES) == pytest.approx(443 / 9, rel=1e-15)
    assert only(query("variance", **whole), AGES) == pytest.approx(ALL.var(), rel=1e-12)
    bins = answered(query("histogram", edges=(0, 40, 60, 92)), AGES)
    assert [(one.label, one.value) for one in bins.estimates] == [
        ("[0, 40)", 3),
        ("[40, 60)", 3),
        ("[60, 92]", 3),
        ("other", 0),
    ]
    assert (bins.kind, bins.column, bins.num_records) == ("histogram", "age", 9)
    (median,) = answered(query("quantile", low=0, high=128, height=7), AGES).estimates
    assert (median.low, median.value, median.high) == (41, 41.5, 42)


def test_the_counters_of_one_site() -> None:
    """From 0 to 120 the middle is 60, the most 60: (60 n, Σ(v - 60)), for a variance (3600 n, 60 Σx, Σx²)."""
    assert counted(query("mean", low=0, high=120), AGES[0]).tolist() == [180, -54]
    assert counted(query("variance", low=0, high=120), AGES[0]).tolist() == [10800, -60 * 54, 900 + 361 + 25]
    assert counted(query("sum", low=0, high=120, scale=10), [30.04]).tolist() == [600, -300]
    assert counted(query("quantile", low=0, high=4, height=2), [0.5, 3.5, 9.0, -1]).tolist() == [4, 2, 2, 2, 0, 0, 2]
    assert counted(query("count"), ["x", None, "", "y"]).tolist() == [2]
    assert counted(query("top", categories=("a", "b")), ["a", "c", "a", None]).tolist() == [2, 0, 1]
    assert counted(query("top", categories=("1", "2")), np.array([1, 2, 2])).tolist() == [1, 2, 0]
    assert counted(query("histogram", edges=(0, 1, 2)), [0, 1, 2, -0.1, 2.1, math.inf, math.nan]).tolist() == [1, 2, 3]


def test_values_are_clipped_and_missing_ones_are_left_out() -> None:
    asked = query("mean", low=0, high=100)
    assert only(asked, [[-50.0, 400.0, math.nan, None], [math.inf, -math.inf]]) == 50
    assert answered(asked, [[math.nan]]).num_records == 0


def test_the_first_records_of_each_person_are_counted() -> None:
    asked = query("sum", low=0, high=10, records_per_person=2)
    values, people = [1.0, 2.0, 3.0, 4.0, math.nan, 5.0, 6.0], ["a", "b", "a", "a", "b", "b", "b"]
    total = counted(asked, values, people)
    (found,) = decode(asked, total)
    assert found.estimates[0].value == 1 + 3 + 2 + 5
    assert found.num_records == 4


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.tuples(st.integers(0, 5), st.floats(-20, 20)), max_size=30),
    kind=st.sampled_from(["count", "sum", "mean", "variance", "histogram", "quantile", "top"]),
    per_person=st.integers(1, 4),
)
def test_one_person_adds_no_more_than_the_sensitivity(
    records: list[tuple[int, float]], kind: str, per_person: int
) -> None:
    fields = {
        "count": {},
        "histogram": {"edges": (-10, 0, 10)},
        "quantile": {"low": -10, "high": 10, "height": 3},
        "top": {"categories": ("0.0", "1.0")},
    }.get(kind, {"low": -10, "high": 15, "scale": 3.0})
    asked = query(kind, records_per_person=per_person, **fields)
    people, values = [person for person, _ in records], [value for _, value in records]
    with_them = counted(asked, values, people)
    others = [(person, value) for person, value in records if person != 0]
    without = counted(asked, [value for _, value in others], [person for person, _ in others])
    change = (with_them - without).astype(float)
    assert np.abs(change).sum() <= asked.l1_sensitivity
    assert np.linalg.norm(change) <= asked.l2_sensitivity * (1 + 1e-12)
    assert np.abs(with_them).max(initial=0) <= asked.shape.largest * len(records)
    assert len(with_them) == asked.shape.num_counters


@settings(max_examples=80, deadline=None)
@given(
    sites=st.lists(st.lists(st.floats(-30, 30), max_size=12), min_size=1, max_size=5),
    scale=st.sampled_from([0.5, 1.0, 7.0, 1000.0]),
    kind=st.sampled_from(["count", "sum", "mean", "variance", "quantile"]),
    share=st.floats(0.01, 0.99),
)
def test_the_truth_lies_in_the_interval(sites: list[list[float]], scale: float, kind: str, share: float) -> None:
    values = np.clip(np.concatenate([np.array(site, float) for site in sites]), -20.0, 25.0)
    if kind == "quantile":
        asked = query(kind, low=-20, high=25, at=(share,), height=6)
    else:
        asked = query(kind, **({} if kind == "count" else {"low": -20, "high": 25, "scale": scale}))
    found = answered(asked, [np.array(site, float) for site in sites])
    assert found.num_records == len(values)
    (one,) = found.estimates
    if one.value is None:
        assert len(values) * min(share, 1 - share) < 1 if kind == "quantile" else len(values) == 0
        return
    truth = {
        "count": len(values),
        "sum": values.sum(),
        "mean": values.mean() if len(values) else 0,
        "variance": values.var() if len(values) else 0,
        "quantile": np.sort(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)] if len(values) else 0,
    }[kind]
    assert one.low is not None
    assert one.high is not None
    assert one.low - 1e-9 <= truth <= one.high + 1e-9
    assert one.low <= one.value <= one.high
    if kind == "quantile":
        assert one.high - one.low <= 45 / 2**6 * (1 + 1e-9)


def test_roundings_that_all_go_inwards_are_within_the_interval() -> None:
    (found,) = answered(query("variance", low=-20, high=20), [[10.49, -10.49]]).estimates
    assert (found.value, found.low, found.high) == (100, 100 - 10.25, 100 + 10.25)  # h (2σ + h), h = 1/2
    assert found.high is not None
    assert found.high > 10.49**2


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(0, 6), st.integers(1, 4))
def test_the_most_frequent_and_what_is_not_shown(records: list[str], floor: int, k: int) -> None:
    asked = query("top", categories=("a", "b", "c"), k=k, withhold_below=floor)
    found = answered(asked, [records])
    counts = {name: records.count(name) for name in "abc"}
    values = [one.value for one in found.estimates]
    assert all(value == counts[one.label] for one, value in zip(found.estimates, values, strict=True))
    assert values == sorted(values, reverse=True)
    assert all(value is not None and value >= max(floor, 1) for value in values)
    hidden = len(records) - sum(value for value in values if value is not None)
    assert hidden == 0 or hidden >= floor or found.num_records is None
    if found.estimates:
        assert values[0] == max(counts.values())


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 6))
def test_bins_with_few_records_are_not_shown_nor_told_by_the_total(records: list[int], floor: int) -> None:
    asked = query("histogram", edges=(0, 1, 2, 3), withhold_below=floor)
    found = answered(asked, [np.array(records, float)])
    counts = [records.count(0), records.count(1), records.count(2) + records.count(3), records.count(4)]
    hidden = 0
    for one, count in zip(found.estimates, counts, strict=True):
        assert one.value in (None, count)
        if 0 < count < floor:
            assert (one.value, one.low, one.high) == (None, None, None)
        if count == 0:
            assert one.value == 0
        hidden += count if one.value is None else 0
    assert hidden == 0 or hidden >= floor or found.num_records is None
    assert found.num_records == (len(records) if not 0 < len(records) < floor else None)


@pytest.mark.parametrize("kind", ["count", "sum", "mean", "variance"])
def test_what_rests_on_few_records_is_withheld(kind: str) -> None:
    asked = query(kind, withhold_below=5, **({} if kind == "count" else {"low": 0, "high": 10}))
    few, enough = answered(asked, [[1.0, 2.0], [3.0, 4.0]]), answered(asked, [[1.0, 2.0], [3.0, 4.0, 5.0]])
    assert (few.estimates[0].value, few.num_records) == (None, None)
    assert enough.estimates[0].value is not None


def test_a_quantile_that_is_nearly_one_persons_value_is_withheld() -> None:
    asked = query("quantile", low=0, high=64, height=6, at=(0.05, 0.5, 0.95), withhold_below=5)
    shown = [one.value for one in answered(asked, [np.arange(60.0)]).estimates]
    assert shown[0] is None
    assert shown[1] == 29.5
    assert shown[2] is None


def noisy(asked: Query, counters: np.ndarray, deviation: float, seed: int) -> Answer:
    noise = np.rint(np.random.default_rng(seed).normal(0, deviation, len(counters))).astype(np.int64)
    (found,) = decode(asked, counters + noise, deviation=deviation)
    return found


@pytest.mark.parametrize("kind", ["count", "sum", "mean", "variance", "quantile"])
def test_with_noise_the_interval_is_right_about_nineteen_times_in_twenty(kind: str) -> None:
    records = np.clip(np.random.default_rng(5).normal(60, 15, 5000), 0, 120)
    fields: dict[str, Any] = {} if kind == "count" else {"low": 0, "high": 120}
    fields |= {"height": 8} if kind == "quantile" else {"scale": 10} if fields else {}
    asked = query(kind, max_records_per_site=10_000, **fields)
    truth = {
        "count": 5000,
        "sum": records.sum(),
        "mean": records.mean(),
        "variance": records.var(),
        "quantile": np.sort(records)[2499],
    }[kind]
    deviation, counters, hits = 20.0 * asked.shape.largest, counted(asked, records), 0
    for seed in range(300):
        (one,) = noisy(asked, counters, deviation, seed).estimates
        assert one.low is not None
        assert one.high is not None
        hits += one.low <= truth <= one.high
        assert one.high - one.low < {"count": 79, "sum": 7500, "mean": 1.1, "variance": 65, "quantile": 4}[kind]
    assert 270 <= hits < (301 if kind == "quantile" else 300)  # whose leaves are whole


def test_a_quotient_of_noise_is_withheld() -> None:
    asked = query("mean", low=0, high=10)
    assert noisy(asked, counted(asked, [1.0, 2.0]), 50.0, 1).estimates[0].value is None


def test_text_where_numbers_are_asked_for_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(ConfigError, match="'age' holds something that is no number") as caught:
        counted(query("mean", low=0, high=10), [1.0, "confidential"])
    assert "confidential" not in str(caught.value)
    with pytest.raises(ConfigError, match="not one value for each value of the column of people"):
        counted(query("count"), [1, 2, 3], ["a", "b"])
    for people in (["a", None, "b"], [1.0, math.nan, 2.0], ["a", "", "b"]):
        with pytest.raises(ConfigError, match="a record is of nobody"):
            counted(query("count"), [1, 2, 3], people)


def test_a_site_with_too_many_records_does_not_answer() -> None:
    asked = query("count", max_records_per_site=3)
    assert counted(asked, [1, 2, 3]).tolist() == [3]
    with pytest.raises(InvalidUpdate, match="at most 3 records of a site, this one has more"):
        counted(asked, [1, 2, 3, 4])


SEVERAL = [
    {"kind": "count", "column": "sex"},
    {"kind": "mean", "column": "age", "low": 0, "high": 120},
    {"kind": "variance", "column": "age", "low": 0, "high": 120},
    {"kind": "histogram", "column": "age", "edges": [0, 40, 92]},
    {"kind": "quantile", "column": "age", "low": 0, "high": 128, "height": 7},
    {"kind": "top", "column": "sex", "categories": ["f", "m"]},
]
SEXES = [["f", "m", "f"], ["m", None], ["f"], ["f", "f", "m"]]


def several(**outer: Any) -> Query:
    return Query.model_validate({"name": "q", "withhold_below": 0, "questions": SEVERAL} | outer)


def test_several_questions_are_answered_from_one_sum_as_each_alone() -> None:
    asked = several()
    total = np.sum([encode(asked, {"age": a, "sex": s}) for a, s in zip(AGES, SEXES, strict=True)], axis=0)
    together = decode(asked, total)
    for question, found in zip(SEVERAL, together, strict=True):
        alone = Query.model_validate({"name": "q", "withhold_below": 0, "question": question})
        assert alone.parts[0].stretch == 1
        column = SEXES if question["column"] == "sex" else AGES
        own = np.sum([encode(alone, {question["column"]: values}) for values in column], axis=0)
        assert decode(alone, own) == (found,)
    assert num_records(asked, total) == (8, 9, 9, 9, 9, 8)


def test_with_noise_a_record_adds_about_as_much_to_each_question() -> None:
    asked = several(noise={"multiplier": 1.0})
    assert [part.stretch for part in asked.parts] == [3600, 60, 1, 3600, 3600, 3600]
    one = encode(asked, {"age": [60.0], "sex": ["f"]}).astype(float)
    assert np.abs(one).sum() <= asked.l1_sensitivity
    assert np.linalg.norm(one) <= asked.l2_sensitivity
    assert asked.shape.largest == 3600
    count, mean, *_ = decode(asked, encode(asked, {"age": [30.0] * 4, "sex": ["f"] * 4}), deviation=3600.0)
    assert count.estimates[0].value == 4
    assert count.estimates[0].high == pytest.approx(4 + 1.96 * math.hypot(1, math.sqrt(1 / 12)))
    assert mean.num_records == 4


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-10, 200), max_size=9), st.floats(-10, 200))
def test_a_person_more_adds_no_more_than_the_sensitivity_over_all_questions(ages: list[float], age: float) -> None:
    asked = several(noise={"multiplier": 1.0})
    less = encode(asked, {"age": ages, "sex": ["f"] * len(ages)})
    more = encode(asked, {"age": [*ages, age], "sex": ["f"] * (len(ages) + 1)})
    change = (more - less).astype(float)
    assert np.abs(change).sum() <= asked.l1_sensitivity
    assert np.linalg.norm(change) <= asked.l2_sensitivity * (1 + 1e-12)


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="there is no column 'sex'"):
        encode(several(), {"age": [1.0]})


def test_answers_survive_being_written_down() -> None:
    asked = several(withhold_below=4)
    total = np.sum([encode(asked, {"age": a, "sex": s}) for a, s in zip(AGES, SEXES, strict=True)], axis=0)
    found = Answers(decode(asked, total), 4, 0.5, 1e-6)
    assert Answers.from_json(found.to_json()) == found
    assert any(one.value is None for answer in found.answers for one in answer.estimates)
