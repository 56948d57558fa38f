"""How many sites may collude, vanish and lie: the inequality, and what is usual."""

from __future__ import annotations

import pytest
from foedus.privacy.secagg.holders import (
    MAX_HOLDERS,
    Reserves,
    answers_needed,
    sharing_fault,
    usual_reserves,
    widest_packing,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("num_sites", "reserves"), [(10, Reserves(2, 1, 2)), (20, Reserves(4, 1, 5)), (50, Reserves(10, 5, 12))]
)
def test_the_usual_reserves_are_those_of_the_page(num_sites: int, reserves: Reserves) -> None:
    assert usual_reserves(num_sites) == reserves


@given(st.integers(3, MAX_HOLDERS))
def test_what_is_usual_fits_and_uses_every_site(num_sites: int) -> None:
    usual = usual_reserves(num_sites)
    t, d, e = usual.privacy_threshold, usual.dropouts, usual.wrong_holders
    assert 5 * t >= num_sites
    assert answers_needed(t, e) + d == num_sites
    assert sharing_fault(num_sites, byzantine=e, privacy_threshold=t, dropouts=d, wrong_holders=e) is None
    assert d >= 1 or num_sites == 3


@given(*[st.integers(0, 70)] * 2, *[st.integers(0, 12)] * 3)
def test_a_fault_is_found_exactly_where_the_inequalities_fail(n: int, f: int, t: int, d: int, e: int) -> None:
    found = sharing_fault(n, byzantine=f, privacy_threshold=t, dropouts=d, wrong_holders=e)
    holds = t >= 1 and n <= 64 and f <= e and n >= 2 * t + 1 + d + 2 * e
    assert (found is None) is holds


@given(*[st.integers(0, 70)] * 2, *[st.integers(0, 12)] * 4)
def test_with_blocks_a_fault_is_found_exactly_where_the_inequalities_fail(
    n: int, f: int, t: int, d: int, e: int, k: int
) -> None:
    found = sharing_fault(n, byzantine=f, privacy_threshold=t, dropouts=d, wrong_holders=e, packing=k)
    holds = t >= 1 and k >= 1 and n <= 64 and f <= e and n >= 2 * (t + k - 1) + 1 + d + 2 * e
    assert (found is None) is holds


@given(st.integers(1, MAX_HOLDERS), st.integers(1, 20), st.integers(0, 12), st.integers(0, 12))
def test_the_widest_packing_fits_and_one_more_block_does_not(n: int, t: int, d: int, e: int) -> None:
    widest = widest_packing(n, Reserves(t, d, e))
    for k, fits in ((widest, True), (widest + 1, False)):
        if k >= 1:
            found = sharing_fault(n, byzantine=0, privacy_threshold=t, dropouts=d, wrong_holders=e, packing=k)
            assert (found is None) is fits
