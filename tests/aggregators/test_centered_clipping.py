from __future__ import annotations

import numpy as np
import pytest
from by_definition import combined, geometry, uniform
from foedus.aggregators.centered_clipping import CenteredClipping
from foedus.aggregators.geometry import Geometry
from foedus.errors import ConfigError, TooFewUpdates


def _clipped(updates_ND: np.ndarray, start_D: np.ndarray, clip: float, iterations: int) -> np.ndarray:
    value_D = start_D.copy()
    for _ in range(iterations):
        away_ND = updates_ND - value_D
        lengths_N = np.linalg.norm(away_ND, axis=1)
        value_D = value_D + (away_ND * np.minimum(1, clip / np.maximum(lengths_N, 1e-300))[:, None]).mean(axis=0)
    return value_D


@pytest.mark.parametrize("iterations", [1, 2, 10])
@pytest.mark.parametrize("from_reference", [False, True])
@pytest.mark.parametrize("num_far", [0, 1, 4])
@pytest.mark.parametrize("scale", [1e4, 1e7, 1e10])
def test_it_is_what_the_rows_give(iterations: int, from_reference: bool, num_far: int, scale: float) -> None:
    generator = np.random.default_rng(0)
    updates_ND = generator.standard_normal((11, 5))
    updates_ND[:num_far] *= scale
    start_D = generator.standard_normal(5) if from_reference else np.zeros(5)
    seen = geometry(updates_ND, start_D if from_reference else None)
    decision = CenteredClipping(1.5, iterations).judge(seen, uniform(11))
    assert decision.weights_N is not None
    assert decision.weights_N.size == 11 + from_reference
    assert decision.weights_N.sum() <= 1 + 1e-12
    value_D = combined(decision.combination, np.vstack([updates_ND, start_D]))
    expected_D = _clipped(updates_ND, start_D, 1.5, iterations)
    np.testing.assert_allclose(value_D, expected_D, atol=1e-12 * scale if scale < 1e6 else 1e-4)
    np.testing.assert_allclose(
        decision.scores_N,
        np.linalg.norm(updates_ND - expected_D, axis=1),
        rtol=1e-3,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("scale", [1e17, 1e30])
@pytest.mark.parametrize("num_far", [1, 4])
def test_one_step_is_exact_however_far_the_rows_are(scale: float, num_far: int) -> None:
    updates_ND = np.random.default_rng(1).standard_normal((11, 5))
    updates_ND[:num_far] *= scale
    value_D = combined(CenteredClipping(1.0).judge(geometry(updates_ND), uniform(11)).combination, updates_ND)
    np.testing.assert_allclose(value_D, _clipped(updates_ND, np.zeros(5), 1.0, 1), atol=1e-12)


@pytest.mark.parametrize("scale", [1e17, 1e30])
@pytest.mark.parametrize("num_far", [1, 4])
def test_rows_that_are_too_far_for_any_digit_gain_no_more_than_their_steps(scale: float, num_far: int) -> None:
    updates_ND = np.random.default_rng(1).standard_normal((11, 5))
    without_D = _clipped(updates_ND[num_far:], np.zeros(5), 1.0, 10)
    updates_ND[:num_far] *= scale
    value_D = combined(CenteredClipping(1.0, 10).judge(geometry(updates_ND), uniform(11)).combination, updates_ND)
    assert np.linalg.norm(value_D - without_D) < 10 * num_far / 11


def test_rows_at_an_infinite_distance_weigh_nothing() -> None:
    squared_PP = geometry(np.array([[3.0], [1], [0], [2]])).squared_PP
    squared_PP[0, 1:] = squared_PP[1:, 0] = np.inf
    decision = CenteredClipping(1.0).judge(Geometry(squared_PP), uniform(4))
    np.testing.assert_allclose(decision.weights_N, [0, 1 / 4, 1 / 4, 1 / 8])  # type: ignore[arg-type]
    assert decision.selected == (1, 2, 3)
    # Its pull of 1/4, in a direction nobody knows, counts as one at right angles to the others.
    expected_N = [np.inf, *np.hypot([0.5, 0.5, 1.5], 0.25)]
    np.testing.assert_allclose(decision.scores_N, expected_N, rtol=1e-6)  # type: ignore[arg-type]


def test_one_update_and_equal_ones() -> None:
    for n in (1, 4):
        updates_ND = np.full((n, 2), 3.0)
        value_D = combined(CenteredClipping(1.0).judge(geometry(updates_ND), uniform(n)).combination, updates_ND)
        np.testing.assert_allclose(value_D, np.full(2, np.sqrt(0.5)))
        at_start = CenteredClipping(1.0, 3).judge(geometry(updates_ND, updates_ND[:1]), uniform(n))
        np.testing.assert_allclose(combined(at_start.combination, np.full((n + 1, 2), 3.0)), [3, 3])


def test_bad_parameters_are_refused() -> None:
    for clip in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="clip is"):
            CenteredClipping(clip)
    with pytest.raises(ConfigError, match="iterations is 0"):
        CenteredClipping(1.0, 0)
    with pytest.raises(TooFewUpdates, match="centered-clipping with f = 1 needs n > 2f: at least 3 updates, got 2"):
        CenteredClipping(1.0, f=1).judge(geometry(np.ones((2, 1))), uniform(2))
