from __future__ import annotations

import numpy as np
import pytest
from by_definition import geometry
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.mixing import Bucketing, NearestNeighbourMixing, mixed
from foedus.errors import ConfigError, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 10), st.integers(0, 2), st.integers(0, 2**32))
def test_the_geometry_is_that_of_the_mixed_rows(n: int, num_references: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    updates_ND, references_RD = generator.standard_normal((n, 3)), generator.standard_normal((num_references, 3))
    seen = geometry(updates_ND, references_RD)
    for step in (NearestNeighbourMixing(int(generator.integers(0, (n + 1) // 2))), Bucketing(3)):
        mix_MN = step.mix(n, seen, seed)
        assert len(mix_MN) == step.num_mixed(n)
        np.testing.assert_allclose(mix_MN.sum(axis=1), 1)
        found = mixed(seen, mix_MN)
        assert found.num_references == num_references
        np.testing.assert_allclose(
            found.squared_PP, geometry(mix_MN @ updates_ND, references_RD).squared_PP, atol=1e-12
        )
        np.testing.assert_array_equal(found.squared_PP, found.squared_PP.T)


@given(st.integers(3, 8), st.integers(0, 2**32))
def test_each_row_is_the_mean_of_its_nearest(n: int, seed: int) -> None:
    f = (n - 1) // 2
    updates_ND = np.random.default_rng(seed).integers(-3, 3, (n, 2)).astype(np.float64)  # with duplicates and ties
    mixed_ND = NearestNeighbourMixing(f).mix(n, geometry(updates_ND), 0) @ updates_ND
    for i, row_D in enumerate(mixed_ND):
        nearest = sorted(range(n), key=lambda j: (j != i, np.sum((updates_ND[i] - updates_ND[j]) ** 2), j))
        np.testing.assert_allclose(row_D, updates_ND[nearest[: n - f]].mean(axis=0), atol=1e-14)


def test_buckets_hold_each_update_once_and_follow_the_seed() -> None:
    mix_MN = Bucketing(3).mix(10, None, 5)
    assert [np.count_nonzero(bucket_N) for bucket_N in mix_MN] == [3, 3, 3, 1]
    np.testing.assert_array_equal(np.count_nonzero(mix_MN, axis=0), np.ones(10))
    np.testing.assert_array_equal(Bucketing(3).mix(10, None, 5), mix_MN)
    assert (Bucketing(3).mix(10, None, 6) != mix_MN).any()
    np.testing.assert_array_equal(Bucketing(1).mix(4, None, 0).sum(axis=0), np.ones(4))
    np.testing.assert_array_equal(Bucketing(7).mix(4, None, 0), np.full((1, 4), 0.25))


@pytest.mark.parametrize("far", [1e17, np.inf])
def test_a_far_row_leaves_no_trace_in_mixtures_it_is_not_part_of(far: float) -> None:
    updates_ND = np.random.default_rng(0).standard_normal((6, 3))
    squared_PP = geometry(updates_ND).squared_PP
    squared_PP[5] = squared_PP[:, 5] = far**2
    squared_PP[5, 5] = 0
    mix_MN = np.kron(np.eye(3), np.full((1, 2), 0.5))  # the far row in the last bucket
    found = mixed(Geometry(squared_PP), mix_MN).squared_PP
    expected_PP = geometry(mix_MN @ updates_ND).squared_PP
    clean = [0, 1, 3]
    np.testing.assert_allclose(found[np.ix_(clean, clean)], expected_PP[np.ix_(clean, clean)], atol=1e-13)
    assert (found[2, clean] > 1e30).all()
    assert found[2, 2] == 0
    nearest_NN = NearestNeighbourMixing(1).mix(6, Geometry(squared_PP), 0)
    assert (nearest_NN[:5, 5] == 0).all()


def test_equal_mixtures_with_an_infinite_row_in_them_are_equal() -> None:
    squared_PP = geometry(np.array([[0.0], [1], [2]])).squared_PP
    squared_PP[2] = squared_PP[:, 2] = np.inf
    squared_PP[2, 2] = 0
    found = mixed(Geometry(squared_PP), np.array([[0.5, 0, 0.5], [0.5, 0, 0.5], [0, 0.5, 0.5]])).squared_PP
    np.testing.assert_array_equal(
        found, [[0, 0, np.inf, np.inf]] * 2 + [[np.inf, np.inf, 0, np.inf]] + [[np.inf] * 3 + [0]]
    )


def test_mixing_equal_updates_and_one_alone() -> None:
    seen = geometry(np.ones((4, 2)))
    np.testing.assert_allclose(mixed(seen, Bucketing().mix(4, None, 0)).squared_PP, [[0, 0, 2], [0, 0, 2], [2, 2, 0]])
    np.testing.assert_array_equal(NearestNeighbourMixing(0).mix(1, geometry(np.ones((1, 2))), 0), [[1]])


def test_conditions() -> None:
    with pytest.raises(TooFewUpdates, match="nnm with f = 2 needs n > 2f: at least 5 updates, got 4"):
        NearestNeighbourMixing(2).mix(4, geometry(np.ones((4, 1))), 0)
    with pytest.raises(TooFewUpdates, match="bucketing needs an update: at least 1 updates, got 0"):
        Bucketing().require(0)
    with pytest.raises(ConfigError, match="the size of a bucket is 0"):
        Bucketing(0)
    assert [Bucketing(3).num_mixed(n) for n in (1, 3, 4)] == [1, 1, 2]
