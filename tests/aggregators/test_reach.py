from __future__ import annotations

import numpy as np
import pytest
from by_definition import geometry
from foedus.aggregators.reach import REACH, within_reach


@pytest.mark.parametrize("scale", [1e6, 1e10])
def test_far_rows_are_replaced_on_the_way_to_them(scale: float) -> None:
    updates_ND = np.random.default_rng(0).standard_normal((6, 3))
    updates_ND[[1, 4]] *= scale
    points = within_reach(geometry(updates_ND).squared_NN, 2, 100.0)
    from_centre_ND = updates_ND - updates_ND[2]
    lengths_N = np.linalg.norm(from_centre_ND, axis=1)
    nearer_ND = updates_ND[2] + from_centre_ND * np.minimum(1, 100 / np.maximum(lengths_N, 100))[:, None]
    np.testing.assert_allclose(points.squared_PP, geometry(nearer_ND).squared_NN, rtol=1e-3)
    np.testing.assert_array_equal(points.squared_PP, points.squared_PP.T)
    weights_N = np.random.default_rng(1).dirichlet(np.ones(6))
    at_D = weights_N @ nearer_ND
    expected_N = ((nearer_ND - at_D) ** 2).sum(axis=1)
    np.testing.assert_allclose(points.squared_distances(weights_N), expected_N, rtol=1e-3)
    np.testing.assert_allclose(points.given_back(weights_N) @ updates_ND, at_D, rtol=1e-6)


def test_what_is_near_keeps_every_bit() -> None:
    updates_ND = np.random.default_rng(0).standard_normal((6, 3))
    squared_NN = geometry(updates_ND).squared_NN
    updates_ND[0] *= 1e17
    points = within_reach(geometry(updates_ND).squared_NN, 2, REACH)
    assert points.squared_PP[1:, 1:].tobytes() == squared_NN[1:, 1:].tobytes()
    weights_N = np.full(6, 1 / 6)
    assert within_reach(squared_NN, 2, REACH).given_back(weights_N).tobytes() == weights_N.tobytes()


def test_an_infinite_row_pulls_on_nothing() -> None:
    squared_PP = np.array([[0, 1, np.inf, 9], [1, 0, np.inf, 4], [np.inf, np.inf, 0, np.inf], [9, 4, np.inf, 0]])
    points = within_reach(squared_PP, 0, 2.0)
    np.testing.assert_array_equal(points.factors_P, [1, 1, 0, 2 / 3])
    np.testing.assert_allclose(points.squared_PP, [[0, 1, 4, 4], [1, 0, 5, 1], [4, 5, 0, 8], [4, 1, 8, 0]], atol=1e-15)
    np.testing.assert_allclose(points.given_back(np.full(4, 0.25)), [0.25 + 0.25 + 0.25 / 3, 0.25, 0, 0.5 / 3])


@pytest.mark.parametrize("scale", [1e17, 1e30])
def test_rounding_is_held_to_what_an_angle_can_be(scale: float) -> None:
    updates_ND = np.random.default_rng(0).standard_normal((8, 3))
    updates_ND[:3] *= scale
    points = within_reach(geometry(updates_ND).squared_NN, 5, 1e5)
    lengths_N = np.sqrt(points.squared_PP[5])
    np.testing.assert_allclose(lengths_N[:3], 1e5)
    gaps_NN = np.abs(lengths_N[:, None] - lengths_N[None, :])
    sums_NN = lengths_N[:, None] + lengths_N[None, :]
    assert (points.squared_PP >= gaps_NN**2 - 1e-4).all()
    assert (points.squared_PP <= sums_NN**2 + 1e-4).all()
