from __future__ import annotations

import numpy as np
import pytest
from foedus.aggregators import Aggregate, rule
from foedus.aggregators.mean import Mean
from foedus.errors import ConfigError, InvalidUpdate, TooFewExamples
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.lists(st.integers(0, 10**9), min_size=1, max_size=30).filter(any)


def test_the_mean_weighs_by_examples() -> None:
    result = rule("mean")(np.array([[1.0, 0.0], [5.0, 4.0]]), [3, 1])
    assert isinstance(result, Aggregate)
    assert result.update_D.dtype == np.float32
    np.testing.assert_array_equal(result.update_D, [2.0, 1.0])
    np.testing.assert_array_equal(result.weights_N, [0.75, 0.25])
    assert (result.selected, result.rejected, result.scores) == ((0, 1), (), None)


def test_without_counts_all_weigh_the_same() -> None:
    np.testing.assert_array_equal(rule("mean")(np.array([[1.0], [5.0]])).update_D, [3.0])


def test_an_update_on_no_example_takes_no_part() -> None:
    result = rule("mean")(np.array([[1.0], [np.nan], [3.0]]), [1, 0, 1])
    np.testing.assert_array_equal(result.update_D, [2.0])
    assert (result.selected, result.rejected) == ((0, 2), (1,))


def test_a_claimed_count_is_capped() -> None:
    np.testing.assert_allclose(Mean(max_examples=100).weights([50, 10**15]), [1 / 3, 2 / 3])


def test_uniform_weighs_every_update_with_examples_the_same() -> None:
    np.testing.assert_array_equal(
        Mean("uniform", max_examples=5).weights([1, 0, 10**9, 3, 7]), [0.25, 0, 0.25, 0.25, 0.25]
    )


@given(COUNTS, st.sampled_from(["examples", "uniform"]), st.none() | st.integers(1, 10**6))
def test_weights_sum_to_one_and_follow_their_site(counts: list[int], weighting: str, cap: int | None) -> None:
    mean = Mean(weighting, cap)  # type: ignore[arg-type]
    weights_N = mean.weights(counts)
    assert abs(weights_N.sum() - 1) < 1e-12
    assert (weights_N >= 0).all()
    assert ((weights_N == 0) == (np.array(counts) == 0)).all()
    np.testing.assert_array_equal(mean.weights(counts[::-1]), weights_N[::-1])


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.parametrize("counts", [[0, 0, 0], [0], []])
def test_no_examples_at_all_have_no_mean(weighting: str, counts: list[int]) -> None:
    with pytest.raises(TooFewExamples, match=f"{len(counts)} updates rest on no example"):
        Mean(weighting).weights(counts)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, np.nan, np.inf])
def test_impossible_counts_are_refused(count: float) -> None:
    with pytest.raises(InvalidUpdate, match="update 1 claims to rest on"):
        Mean().weights([5, count])


def test_counts_must_match_the_updates() -> None:
    with pytest.raises(InvalidUpdate, match="3 numbers of examples came with 2 updates"):
        rule("mean")(np.ones((2, 4)), [1, 1, 1])


def test_a_value_that_is_not_finite_is_refused_by_name() -> None:
    updates_ND = np.ones((3, 5))
    updates_ND[1, 4] = np.nan
    with pytest.raises(InvalidUpdate, match="update 1 holds nan at parameter 4"):
        rule("mean")(updates_ND)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_examples is 0"):
        rule("mean", max_examples=0)
    with pytest.raises(ConfigError, match="weighting is 'sites'"):
        rule("mean", weighting="sites")
