from __future__ import annotations

import math

import numpy as np
import pytest
from by_definition import geometry, uniform
from foedus.aggregators import rule
from foedus.aggregators.foolsgold import FoolsGold
from foedus.aggregators.geometry import Geometry
from foedus.errors import ConfigError, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st


def _weights(histories_ND: np.ndarray) -> list[float]:
    """Loop by loop, as the authors' code."""
    n = len(histories_ND)
    cosine = [
        [
            0.0 if i == j else float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
            for j, b in enumerate(histories_ND)
        ]
        for i, a in enumerate(histories_ND)
    ]
    most = [max(row) + 1e-5 for row in cosine]
    for i in range(n):
        for j in range(n):
            if most[i] < most[j]:
                cosine[i][j] *= most[i] / most[j]
    apart = [min(1, max(0, 1 - max(row))) for row in cosine]
    weights = []
    for alpha in (each / max(apart) for each in apart):
        weights.append(1.0 if alpha == 1 else min(1, max(0, math.log(alpha / (1 - alpha) + 1e-5) + 0.5)))
    return weights


@given(st.integers(1, 8), st.integers(2, 6), st.integers(0, 2**32))
def test_it_is_what_the_histories_give(n: int, d: int, seed: int) -> None:
    histories_ND = np.random.default_rng(seed).standard_normal((n, d)) + 0.5
    expected_N = np.array(_weights(histories_ND))
    decision = FoolsGold().judge(geometry(histories_ND), uniform(n))
    np.testing.assert_allclose(1 - decision.scores_N, expected_N, atol=1e-7)  # type: ignore[operator]
    np.testing.assert_allclose(decision.weights_N, expected_N / expected_N.sum(), atol=1e-7)  # type: ignore[arg-type]


def test_sybils_lose_to_sites_that_differ() -> None:
    generator = np.random.default_rng(0)
    histories_ND = np.vstack([np.eye(4, 40) + 0.1 * generator.random((4, 40)), np.tile(generator.random(40), (6, 1))])
    decision = FoolsGold().judge(geometry(histories_ND), uniform(10))
    assert decision.selected == (0, 1, 2, 3)


@pytest.mark.parametrize("histories", [[[1.0, 2]] * 4, [[1.0, 0], [2, 0], [0, 1], [0, 3]]])
def test_where_each_site_is_anothers_likeness_all_weigh_the_same(histories: list[list[float]]) -> None:
    decision = FoolsGold().judge(geometry(np.array(histories)), uniform(4))
    np.testing.assert_array_equal(decision.weights_N, uniform(4))  # type: ignore[arg-type]


def test_float32_distances_tell_no_sites_apart_that_are_alike() -> None:
    row_D = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    points_PD = np.vstack([row_D * np.float32(scale) for scale in (1, 1.7, 0.3, 0)])
    squared_PP = ((points_PD[:, None] - points_PD[None, :]) ** 2).sum(axis=2, dtype=np.float64)
    decision = FoolsGold().judge(Geometry(squared_PP), uniform(3))
    np.testing.assert_array_equal(decision.weights_N, uniform(3))  # type: ignore[arg-type]


def test_a_history_of_no_length_is_like_no_other_and_one_without_measure_weighs_nothing() -> None:
    squared_PP = geometry(np.array([[0.0, 0], [1, 0], [1, 0], [5, 5]])).squared_PP
    squared_PP[3] = squared_PP[:, 3] = np.inf
    squared_PP[3, 3] = 0
    decision = FoolsGold().judge(Geometry(squared_PP), uniform(4))
    assert decision.selected == (0,)  # the infinite one could be anybody's likeness
    assert FoolsGold().judge(geometry(np.ones((1, 2))), uniform(1)).selected == (0,)


def test_sybils_whose_sums_grew_beyond_measure_gain_nothing() -> None:
    honest_ND = np.random.default_rng(0).standard_normal((5, 50)).astype(np.float32)
    updates_ND = np.vstack([honest_ND, np.full((3, 50), 1e18, np.float32)])
    result = rule("foolsgold")(updates_ND, reference=5 * updates_ND)
    assert result.selected == (0, 1, 2, 3, 4)


def test_sums_of_whole_updates_cannot_be_bounded_afterwards() -> None:
    with pytest.raises(ConfigError, match="foolsgold judges by sums of whole updates") as caught:
        rule("foolsgold", clip_norm=8.0)
    assert caught.value.hint.startswith("take reject_norm")


def test_all_may_lie_but_one() -> None:
    FoolsGold(4).require(5)
    with pytest.raises(TooFewUpdates, match="foolsgold with f = 4 needs n > f: at least 5 updates, got 4"):
        FoolsGold(4).judge(geometry(np.ones((4, 2))), uniform(4))
