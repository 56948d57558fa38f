"""Who is asked: a pure, seeded, uniform choice; and what the answers mean together."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from foedus.plan import Cohort
from foedus.server.planner import Selection, middle, select, weighted_mean
from hypothesis import given
from hypothesis import strategies as st

SITES = [f"site-{number:03}" for number in range(100)]

cohorts = st.one_of(
    st.builds(
        lambda fraction, minimum, over: Cohort(fraction=fraction, minimum=minimum, over_selection=over),
        st.floats(0.01, 1),
        st.integers(1, 8),
        st.floats(0, 4),
    ),
    st.builds(
        lambda minimum, more, quorum, over: Cohort(
            count=minimum + more, minimum=minimum, quorum=min(quorum, minimum + more), over_selection=over
        ),
        st.integers(1, 5),
        st.integers(0, 5),
        st.integers(1, 10),
        st.floats(0, 4),
    ),
)


@given(cohorts, st.sets(st.sampled_from(SITES)), st.integers(0, 2**63 - 1), st.integers(1, 10**6), st.data())
def test_a_cohort_is_chosen_by_seed_and_names_alone(cohort, available, seed, round, data):
    found = select(cohort, available, seed=seed, round=round)
    shuffled = data.draw(st.permutations(sorted(available)))
    assert select(cohort, shuffled, seed=seed, round=round) == found
    if len(available) < cohort.sites_needed or not available:
        assert found is None
        return
    assert set(found.cohort) <= available
    assert list(found.cohort) == sorted(set(found.cohort))
    assert cohort.sites_needed <= found.target <= len(found.cohort)
    assert 1 <= found.quorum <= found.target


@pytest.mark.parametrize(
    ("cohort", "num_available", "expected"),
    [
        (Cohort(), 5, (5, 5, 5)),
        (Cohort(fraction=0.5), 5, (3, 3, 3)),
        (Cohort(fraction=0.07), 100, (7, 7, 7)),  # 0.07 * 100 is 7.000000000000001
        (Cohort(fraction=0.01, minimum=3), 10, (3, 3, 3)),
        (Cohort(fraction=0.01, quorum=4), 10, (4, 4, 4)),
        (Cohort(count=10, over_selection=0.1), 100, (11, 10, 10)),  # 10 * 1.1 is 11.000000000000002
        (Cohort(count=4, over_selection=0.5, quorum=2), 5, (5, 4, 2)),
        (Cohort(count=4, over_selection=0.5), 100, (6, 4, 4)),
        (Cohort(count=6), 5, None),
        (Cohort(minimum=6), 5, None),
        (Cohort(quorum=6), 5, None),
        (Cohort(), 0, None),
    ],
)
def test_sizes(cohort, num_available, expected):
    found = select(cohort, SITES[:num_available], seed=1, round=1)
    assert (None if found is None else (len(found.cohort), found.target, found.quorum)) == expected


def test_round_attempt_and_seed_each_change_the_draw():
    def draw(**changes):
        return select(Cohort(count=10), SITES, **{"seed": 1, "round": 1, "attempt": 1, **changes})

    assert draw() == draw()
    assert len({draw(), draw(seed=2), draw(round=2), draw(attempt=2)}) == 4


def test_every_pair_of_sites_is_chosen_equally_often():
    """Chi-squared over the 10 pairs of 5 sites: 9 degrees of freedom, 99.99 % lie below 33.7."""
    counts = Counter(select(Cohort(count=2), SITES[:5], seed=7, round=round).cohort for round in range(1, 5001))
    expected = 5000 / 10
    assert set(counts) == set(itertools.combinations(SITES[:5], 2))
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 33.7


def test_a_selection_is_a_value():
    assert Selection(("a",), 1, 1) == Selection(("a",), 1, 1)


reports = st.lists(
    st.tuples(
        st.integers(0, 1 << 53),
        st.dictionaries(st.sampled_from("abc"), st.floats(allow_nan=False, allow_infinity=False)),
    ),
    max_size=6,
)


@given(reports, st.integers(1, 1 << 53))
def test_a_mean_stays_between_its_values(metrics, cap):
    """Also at the ends of the number line: no site can turn a mean into infinity or NaN."""
    for name, mean in weighted_mean(metrics, cap).items():
        values = [report[name] for weight, report in metrics if name in report and weight]
        assert math.isfinite(mean)
        assert min(values) <= mean <= max(values)


@given(reports)
def test_a_median_is_the_middle_of_those_who_measured(metrics):
    for name, median in middle(metrics).items():
        values = [report[name] for weight, report in metrics if name in report and weight]
        assert math.isfinite(median)
        assert 2 * sum(value <= median for value in values) >= len(values)
        assert 2 * sum(value >= median for value in values) >= len(values)


def test_a_median_by_hand():
    said = [(1, {"auc": 0.5}), (9, {"auc": 0.75, "f1": 1.0}), (0, {"auc": 9.0, "f2": 1.0}), (1 << 53, {"auc": 1e308})]
    assert middle(said) == {"auc": 0.75, "f1": 1.0}
    assert middle(said[:2]) == {"auc": 0.625, "f1": 1.0}
    assert middle([]) == {}


def test_a_mean_by_hand():
    found = weighted_mean([(1, {"loss": 4.0}), (3, {"loss": 0.0, "auc": 0.5}), (0, {"loss": 99.0, "f1": 1.0})], 100)
    assert found == {"auc": 0.5, "loss": 1.0}
    assert weighted_mean([], 1) == {}


def test_a_boast_about_examples_is_capped_as_for_updates():
    assert weighted_mean([(1 << 53, {"auc": 1.0}), (10, {"auc": 0.0})], 10) == {"auc": 0.5}
