"""Exact sums that together give away a few sites are refused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from foedus.privacy.analytics.differencing import differencing_fault, isolates
from hypothesis import given, settings
from hypothesis import strategies as st

SITES = [bytes([number]) * 16 for number in range(12)]


def cohort(*numbers: int) -> frozenset[bytes]:
    return frozenset(SITES[number] for number in numbers)


TEN = cohort(*range(10))


def test_one_site_fewer_or_more_or_exchanged() -> None:
    for other in (TEN - cohort(3), TEN | cohort(10), TEN - cohort(3) | cohort(10), TEN - cohort(3, 4)):
        assert "differ by" in differencing_fault(other, [TEN])
    assert differencing_fault(TEN, []) == ""
    assert differencing_fault(TEN, [TEN]) == ""
    assert differencing_fault(TEN - cohort(3, 4, 5), [TEN]) == ""
    assert "expected at least 5" in differencing_fault(TEN - cohort(3, 4, 5), [TEN], fewest=5)


def test_a_cohort_of_one_or_two_is_an_answer_about_them() -> None:
    assert differencing_fault(cohort(1), [])
    assert differencing_fault(cohort(1, 2), [])
    assert differencing_fault(cohort(1, 2, 3), []) == ""


def test_three_sums_of_which_no_two_are_near() -> None:
    """{0..4, 10} + {5..9} - {0..9} is site 10 alone."""
    answered = [cohort(0, 1, 2, 3, 4, 10), cohort(5, 6, 7, 8, 9)]
    assert differencing_fault(answered[1], answered[:1]) == ""
    assert all(len(TEN ^ before) >= 3 for before in answered)
    assert "together with 2 answers before" in differencing_fault(TEN, answered)


def test_what_cancels_with_other_factors_than_one() -> None:
    """{0,1,2} + {0,3,4,5} + {1,3,4,5} + … counted twice over: here 2·x0 comes out."""
    answered = [cohort(0, 1, 2, 3), cohort(0, 4, 5, 6)]
    assert not isolates(answered)
    assert isolates([*answered, cohort(1, 2, 3, 4, 5, 6)])  # the first two less the third are twice site 0


def by_ranks(cohorts: list[frozenset[bytes]], num_sites: int) -> bool:
    """A combination is of these sites alone if without their columns the rank is smaller."""
    matrix = np.array([[float(SITES[n] in one) for n in range(num_sites)] for one in cohorts])
    rank = np.linalg.matrix_rank(matrix)
    few = [*combinations(range(num_sites), 1), *combinations(range(num_sites), 2)]
    return any(np.linalg.matrix_rank(np.delete(matrix, out, axis=1)) < rank for out in few)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sets(st.integers(0, 8), min_size=3), min_size=1, max_size=6))
def test_isolation_is_what_ranks_say(chosen: list[set[int]]) -> None:
    cohorts = [cohort(*numbers) for numbers in chosen]
    assert isolates(cohorts) == by_ranks(cohorts, 9)


def test_many_sites_and_answers_can_be_compared() -> None:
    random = np.random.default_rng(0)
    sites = [number.to_bytes(16, "big") for number in range(1000)]
    cohorts = [frozenset(sites[n] for n in random.choice(1000, 900, replace=False)) for _ in range(20)]
    assert not isolates(cohorts)
    assert isolates([*cohorts, cohorts[0] ^ frozenset([sites[0]])])


def test_sites_always_asked_together_protect_each_other() -> None:
    together = [cohort(0, 1, 2, 3, 4, 5), cohort(0, 1, 2, 6, 7, 8), cohort(3, 4, 5, 6, 7, 8)]
    assert not isolates(together)
    assert isolates([*together, cohort(0, 1, 9, 10, 11)]) is False
    assert isolates([cohort(0, 1, 2, 3, 4, 5), cohort(0, 1, 2, 3), cohort(6, 7, 8)])
