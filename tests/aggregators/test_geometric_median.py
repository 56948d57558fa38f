from __future__ import annotations

import numpy as np
import pytest
from by_definition import combined, geometry, uniform
from foedus.aggregators.geometric_median import GeometricMedian
from foedus.aggregators.geometry import Geometry
from foedus.errors import ConfigError, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st


def _median(updates_ND: np.ndarray, shares_N: np.ndarray, steps: int = 20_000) -> np.ndarray:
    """On the rows themselves, where what is far blinds nothing."""
    value_D = np.median(updates_ND, axis=0)
    for _ in range(steps):
        pulls_N = shares_N / np.maximum(np.linalg.norm(updates_ND - value_D, axis=1), 1e-13)
        value_D = pulls_N / pulls_N.sum() @ updates_ND
    return value_D


def _found(updates_ND: np.ndarray, shares_N: np.ndarray, rule: GeometricMedian | None = None) -> np.ndarray:
    decision = (rule or GeometricMedian()).judge(geometry(updates_ND), shares_N)
    assert decision.weights_N is not None
    assert decision.weights_N.sum() == pytest.approx(1)
    assert (decision.weights_N >= 0).all()
    return combined(decision.combination, updates_ND)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_median_of_the_rows(seed: int) -> None:
    generator = np.random.default_rng(seed)
    updates_ND = generator.standard_normal((9, 4))
    for shares_N in (uniform(9), generator.dirichlet(np.ones(9))):
        value_D = _found(updates_ND, shares_N, GeometricMedian(iterations=2000))
        np.testing.assert_allclose(value_D, _median(updates_ND, shares_N), atol=1e-5)


@pytest.mark.parametrize("num_far", [1, 4])
@pytest.mark.parametrize("scale", [1e4, 1e6, 1e8, 1e10])
def test_far_rows_pull_no_harder_than_their_direction(num_far: int, scale: float) -> None:
    updates_ND = np.random.default_rng(num_far).standard_normal((11, 6))
    updates_ND[:num_far] *= scale
    np.testing.assert_allclose(_found(updates_ND, uniform(11)), _median(updates_ND, uniform(11)), atol=3e-5)


@pytest.mark.parametrize("num_far", [1, 4])
@pytest.mark.parametrize("scale", [1e17, 1e30])
@pytest.mark.parametrize("alike", [False, True])
def test_rows_that_are_too_far_for_any_digit_leave_the_others_theirs(num_far: int, scale: float, alike: bool) -> None:
    generator = np.random.default_rng(0)
    for _ in range(10):
        updates_ND = generator.standard_normal((11, 6))
        updates_ND[:num_far] = scale * (updates_ND[0] if alike else updates_ND[:num_far])
        honest_ND = updates_ND[num_far:]
        farthest = np.linalg.norm(honest_ND - honest_ND.mean(axis=0), axis=1).max()
        value_D = _found(updates_ND, uniform(11))
        bound = 2 * (11 - num_far) / (11 - 2 * num_far) * farthest
        assert np.linalg.norm(value_D - honest_ND.mean(axis=0)) < bound / 2


def test_rows_at_an_infinite_distance_leave_only_themselves_out() -> None:
    updates_ND = np.random.default_rng(0).standard_normal((9, 4))
    squared_PP = geometry(updates_ND).squared_PP
    squared_PP[:2] = squared_PP[:, :2] = np.inf
    squared_PP[[0, 1], [0, 1]] = 0
    decision = GeometricMedian(2).judge(Geometry(squared_PP), uniform(9))
    assert decision.selected == tuple(range(2, 9))
    assert decision.scores_N is not None
    assert np.isinf(decision.scores_N[:2]).all()
    assert np.isfinite(decision.scores_N[2:]).all()
    # Unseen, they pull at right angles to everything, as two rows far off along axes of their own do.
    apart_ND = np.zeros((9, 6))
    apart_ND[:, :4] = updates_ND
    apart_ND[0, 4] = apart_ND[1, 5] = 1e9
    np.testing.assert_allclose(combined(decision.combination, updates_ND), _median(apart_ND, uniform(9))[:4], atol=1e-2)


@given(st.integers(0, 2**32), st.floats(1e-10, 1e10))
def test_the_median_moves_and_grows_with_the_updates(seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    updates_ND = generator.standard_normal((7, 3))
    order = generator.permutation(7)
    value_D = _found(updates_ND, uniform(7))
    np.testing.assert_allclose(_found(scale * updates_ND, uniform(7)), scale * value_D, rtol=1e-5, atol=1e-7 * scale)
    np.testing.assert_allclose(_found(updates_ND[order], uniform(7)), value_D, atol=1e-4)
    np.testing.assert_allclose(_found(updates_ND + 7, uniform(7)), value_D + 7, atol=1e-7)


def test_it_leaves_an_update_on_which_it_begins() -> None:
    assert _found(np.array([[0.0], [1], [2], [3], [4]]), uniform(5)) == pytest.approx(2, abs=1e-5)
    assert _found(np.array([[1.0], [0], [2], [1], [9], [9], [9]]), uniform(7)) == pytest.approx(2, abs=1e-5)


def test_where_most_coincide_there_is_the_median() -> None:
    updates_ND = np.array([[5.0, 1], [2, 2], [5, 1], [5, 1], [1e30, 0]])
    np.testing.assert_array_equal(_found(updates_ND, uniform(5)), [5, 1])
    np.testing.assert_array_equal(_found(np.ones((4, 2)), uniform(4)), [1, 1])
    np.testing.assert_array_equal(_found(np.array([[7.0]]), uniform(1)), [7])


def test_two_updates_have_the_mean_of_both() -> None:
    np.testing.assert_allclose(_found(np.array([[0.0], [4]]), uniform(2)), [2])


def test_shares_decide_who_is_the_majority() -> None:
    updates_ND = np.array([[0.0], [0], [0], [8]])
    np.testing.assert_array_equal(_found(updates_ND, np.array([0.1, 0.1, 0.1, 0.7])), [8])
    nothing = np.array([0.0, 0.5, 0.5])
    decision = GeometricMedian().judge(geometry(np.array([[1.0], [0], [2]])), nothing)
    assert decision.selected == (1, 2)  # the first lies in the middle, and has no share


def test_updates_of_which_no_majority_lies_together_have_no_median_but_one_of_them() -> None:
    squared_PP = np.full((4, 4), np.inf)
    np.fill_diagonal(squared_PP, 0)
    decision = GeometricMedian().judge(Geometry(squared_PP), uniform(3))
    assert decision.selected == (0,)


def test_bad_parameters_are_refused() -> None:
    for smoothing in (0.0, -1.0, 2.0, float("nan")):
        with pytest.raises(ConfigError, match="smoothing is"):
            GeometricMedian(smoothing=smoothing)
    with pytest.raises(ConfigError, match="iterations is 0"):
        GeometricMedian(iterations=0)
    with pytest.raises(TooFewUpdates, match="geometric-median with f = 2 needs n > 2f: at least 5 updates, got 4"):
        GeometricMedian(2).judge(geometry(np.ones((4, 1))), uniform(4))
