from __future__ import annotations

import numpy as np
import pytest
from by_definition import combined, geometry, uniform
from foedus.aggregators.fltrust import FLTrust
from foedus.aggregators.geometry import Geometry
from foedus.errors import InvalidUpdate, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 2**32))
def test_it_is_what_the_rows_give(n: int, d: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    updates_ND, server_D = generator.standard_normal((n, d)), generator.standard_normal(d)
    lengths_N, length = np.linalg.norm(updates_ND, axis=1), np.linalg.norm(server_D)
    trust_N = np.maximum(updates_ND @ server_D / (lengths_N * length), 0)
    decision = FLTrust().judge(geometry(updates_ND, server_D), uniform(n))
    np.testing.assert_allclose(decision.scores_N, 1 - trust_N, atol=1e-9)  # type: ignore[arg-type]
    if trust_N.max() > 1e-6:
        expected_D = (trust_N * length / lengths_N) @ updates_ND / trust_N.sum()
        np.testing.assert_allclose(combined(decision.combination, updates_ND), expected_D, rtol=1e-6, atol=1e-6)


def test_where_nobody_is_trusted_nothing_changes() -> None:
    updates_ND = np.array([[-1.0, 0], [0, 0], [-2, 5]])
    decision = FLTrust().judge(geometry(updates_ND, np.array([1.0, 0])), uniform(3))
    np.testing.assert_array_equal(decision.weights_N, [0, 0, 0])  # type: ignore[arg-type]
    assert decision.selected == ()
    without_direction = FLTrust().judge(geometry(updates_ND, np.zeros(2)), uniform(3))
    np.testing.assert_array_equal(without_direction.weights_N, [0, 0, 0])  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [-1e17, -1e9, -1e-9, 1e17, 1e-17])
def test_an_update_of_another_order_of_length_is_not_trusted(scale: float) -> None:
    generator = np.random.default_rng(0)
    server_D = generator.standard_normal(100).astype(np.float32)
    updates_ND = np.vstack([server_D, server_D * np.float32(scale)]).astype(np.float32)
    points_PD = np.vstack([updates_ND, server_D, np.zeros(100, np.float32)])
    squared_PP = ((points_PD[:, None] - points_PD[None, :]) ** 2).sum(axis=2, dtype=np.float64)
    decision = FLTrust().judge(Geometry(squared_PP, 1), uniform(2))
    assert decision.selected == (0,)
    np.testing.assert_allclose(decision.weights_N, [1, 0])  # type: ignore[arg-type]


def test_an_update_of_infinite_length_is_not_trusted() -> None:
    squared_PP = geometry(np.array([[1.0], [2]]), np.array([1.0])).squared_PP
    squared_PP[1] = squared_PP[:, 1] = np.inf
    squared_PP[1, 1] = 0
    assert FLTrust().judge(Geometry(squared_PP, 1), uniform(2)).selected == (0,)


def test_all_may_lie_but_one_and_the_reference_must_be_there() -> None:
    FLTrust(4).require(5)
    with pytest.raises(TooFewUpdates, match="fltrust with f = 4 needs n > f: at least 5 updates, got 4"):
        FLTrust(4).require(4)
    with pytest.raises(InvalidUpdate, match="fltrust got 0 reference rows, expected the server's update"):
        FLTrust().judge(geometry(np.ones((3, 2))), uniform(3))
