from __future__ import annotations

import numpy as np
import pytest
from by_definition import geometry
from foedus.aggregators.geometry import Geometry
from foedus.errors import ConfigError
from foedus.privacy.sharing.selection import hides_enough, implausible, integer_weights, squared_distances
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


@given(st.integers(1, 6).flatmap(lambda n: hnp.arrays(np.int64, (n, 4), elements=st.integers(-(2**25), 2**25))))
def test_distances_are_those_of_the_vectors(updates_ND: np.ndarray) -> None:
    gram_NN = updates_ND @ updates_ND.T
    squared_PP = squared_distances(gram_NN, 2**53)
    expected = Geometry(squared_PP).squared_PP
    assert squared_PP.dtype == np.float64
    np.testing.assert_array_equal(expected, geometry(updates_ND).squared_PP)  # whole numbers below 2^53
    np.testing.assert_array_equal(squared_distances(gram_NN, 2**53, 0.125), expected / 8)
    assert implausible(gram_NN, 2**53, len(gram_NN) - 1) == ()


def benign(n: int = 6) -> np.ndarray:
    vectors = np.random.default_rng(0).integers(-100, 100, (n, 5))
    return vectors @ vectors.T


@pytest.mark.parametrize("own", [-1, 10**6 + 1])
def test_an_impossible_square_makes_a_dealer_implausible_and_far_from_all(own: int) -> None:
    gram_NN = benign()
    gram_NN[2, 2] = own
    assert implausible(gram_NN, 10**6, 4) == (2,)
    squared_PP = squared_distances(gram_NN, 10**6)
    assert np.isinf(np.delete(squared_PP[2], 2)).all()
    np.testing.assert_array_equal(squared_PP, squared_PP.T)
    assert (squared_PP.diagonal() == 0).all()


def test_the_limit_itself_is_plausible() -> None:
    gram_NN = np.array([[10, 10, -10], [10, 10, -10], [-10, -10, 10]])  # x, x and -x
    assert implausible(gram_NN, 10, 2) == ()
    assert squared_distances(gram_NN, 10).tolist() == [[0, 0, 40, 10], [0, 0, 40, 10], [40, 40, 0, 10], [10, 10, 10, 0]]


@pytest.mark.parametrize("product", [-(10**6) - 1, 10**6 + 1, 999_999])
def test_an_impossible_product_brings_nobody_nearer(product: int) -> None:
    # The last one is within the limit, but gives a negative distance.
    gram_NN = benign()
    gram_NN[0, 1] = gram_NN[1, 0] = product
    assert implausible(gram_NN, 10**6, 5) == (0, 1)
    assert implausible(gram_NN, 10**6, 4) == ()
    squared_PP = squared_distances(gram_NN, 10**6)
    assert np.isinf(squared_PP[0, 1])
    assert np.isinf(squared_PP).sum() == 2


def test_f_who_spoil_their_products_with_an_honest_dealer_do_not_make_it_implausible() -> None:
    gram_NN = benign(7)
    gram_NN[3, :2] = gram_NN[:2, 3] = 10**9
    gram_NN[0, 4:] = gram_NN[4:, 0] = 10**9
    assert implausible(gram_NN, 10**6, 7 - 2 - 1) == (0,)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([0.25, 0.25, 0.5, 0], [1, 1, 2, 0]),
        ([1 / 3, 1 / 3, 1 / 3], [1] * 3),
        ([1e-9, 1.0], [0, 1]),
        ([1, 0.999], [1024, 1023]),
    ],
)
def test_weights_become_whole_numbers_in_proportion(weights: list[float], expected: list[int]) -> None:
    assert integer_weights(np.array(weights)).tolist() == expected


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -0.1], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="weights from 0 on"):
        integer_weights(np.array(weights))


@pytest.mark.parametrize(
    ("weights", "least", "enough"),
    [
        ([1, 0, 0, 0, 0], 2, False),
        ([1, 1, 1, 0, 0], 3, True),
        ([1, 1, 1, 0, 0], 4, False),
        ([1024, 1, 1, 1], 2, False),
        ([1024, 1024, 512], 2, True),
        ([0, 0, 0], 1, False),
        ([2, -1, 2, 2], 1, False),
        ([1025, 1025, 1025], 1, False),
    ],
)
def test_a_sum_of_few_is_told_from_one_of_many(weights: list[int], least: int, enough: bool) -> None:
    assert hides_enough(np.array(weights), least) is enough
