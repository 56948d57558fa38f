from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_definition import combined, uniform
from foedus.aggregators.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from foedus.aggregators.decision import Closest, Coordinatewise, Middle
from foedus.errors import ConfigError, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


@given(st.integers(1, 9), st.data())
def test_what_is_taken_of_each_coordinate(n: int, data: st.DataObject) -> None:
    f = data.draw(st.integers(0, (n - 1) // 2))
    updates_ND = data.draw(hnp.arrays(np.float64, (n, 3), elements=st.integers(-100, 100)))
    sorted_ND = np.sort(updates_ND, axis=0)
    median_D = combined(Median(f).decide(uniform(n)).combination, updates_ND)
    np.testing.assert_array_equal(median_D, np.median(updates_ND, axis=0))
    trimmed_D = combined(TrimmedMean(f).decide(uniform(n)).combination, updates_ND)
    np.testing.assert_allclose(trimmed_D, sorted_ND[f : n - f].mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("make", [Median, TrimmedMean, MeanAroundMedian])
@given(st.data())
def test_liars_cannot_leave_the_range_of_the_honest(make: Any, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 11))
    f = data.draw(st.integers(0, (n - 1) // 2))
    honest_ND = data.draw(hnp.arrays(np.float64, (n - f, 2), elements=st.floats(-10, 10)))
    lies_ND = data.draw(hnp.arrays(np.float64, (f, 2), elements=st.floats(-1e30, 1e30)))
    value_D = combined(make(f).decide(uniform(n)).combination, np.vstack([lies_ND, honest_ND]))
    # Around the median a lie can be kept, if it is no farther from it than an honest value is.
    reach = 1e-9 + (np.ptp(honest_ND, axis=0) if make is MeanAroundMedian else 0)
    assert (value_D >= honest_ND.min(axis=0) - reach).all()
    assert (value_D <= honest_ND.max(axis=0) + reach).all()


def test_the_statistics() -> None:
    def statistic(rule: Any, n: int) -> Any:
        decision = rule.decide(uniform(n))
        assert isinstance(decision.combination, Coordinatewise)
        assert decision.combination.taken == decision.selected == tuple(range(n))
        assert decision.scores_N is None
        return decision.combination.statistic

    assert [statistic(Median(), n) for n in (1, 2, 5, 6)] == [Middle(0), Middle(0), Middle(2), Middle(2)]
    assert statistic(TrimmedMean(2), 5) == Middle(2)
    assert statistic(MeanAroundMedian(2), 5) == Closest(3)


def test_one_of_four_is_trimmed_however_large_it_is() -> None:
    value_D = combined(TrimmedMean(1).decide(uniform(4)).combination, np.array([[1.0], [1e6], [2], [3]]))
    np.testing.assert_array_equal(value_D, [2.5])


@pytest.mark.parametrize("make", [Median, TrimmedMean, MeanAroundMedian])
def test_half_the_updates_are_too_many_liars(make: Any) -> None:
    make(2).require(5)
    with pytest.raises(TooFewUpdates, match="f = 2 needs n > 2f: at least 5 updates, got 4"):
        make(2).decide(uniform(4))
    with pytest.raises(TooFewUpdates, match="at least 1 updates, got 0"):
        make(0).decide(np.empty(0))
    with pytest.raises(ConfigError, match=r"f is 1\.5, expected a whole number"):
        make(1.5)


def test_a_median_need_not_say_how_many_lie() -> None:
    assert Median().f is None
    Median().require(1)
