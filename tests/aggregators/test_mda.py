from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from by_definition import geometry, uniform
from foedus.aggregators.mda import MinimumDiameter, least_diameter
from foedus.errors import TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def _least(squared_NN: np.ndarray, count: int) -> list[int]:
    """By trying every set; of equal diameters the first in order of indices."""
    sets = list(combinations(range(len(squared_NN)), count))
    return list(min(sets, key=lambda chosen: squared_NN[np.ix_(chosen, chosen)].max()))


@given(st.data())
def test_it_is_the_set_that_trying_all_of_them_finds(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    count = data.draw(st.integers(1, n))
    updates_ND = data.draw(hnp.arrays(np.float64, (n, 2), elements=st.integers(-4, 4)))  # few values: many ties
    squared_NN = geometry(updates_ND).squared_NN
    assert least_diameter(squared_NN, count) == _least(squared_NN, count)


@given(st.integers(2, 11), st.data())
def test_it_is_that_set_for_any_symmetric_matrix(n: int, data: st.DataObject) -> None:
    entries = data.draw(st.lists(st.integers(1, 6), min_size=n * n, max_size=n * n))
    upper_NN = np.triu(np.array(entries, np.float64).reshape(n, n), 1)
    upper_NN[upper_NN == 6] = np.inf
    count = data.draw(st.integers((n + 1) // 2, n))
    assert least_diameter(upper_NN + upper_NN.T, count) == _least(upper_NN + upper_NN.T, count)


@given(st.integers(0, 2**32))
def test_neither_the_order_nor_the_place_of_the_updates_matters(seed: int) -> None:
    generator = np.random.default_rng(seed)
    updates_ND = generator.integers(0, 10**6, (9, 3)).astype(np.float64)
    order = generator.permutation(9)
    squared_NN = geometry(updates_ND).squared_NN
    before = least_diameter(squared_NN, 6)
    assert least_diameter(geometry(updates_ND + 12345).squared_NN, 6) == before
    # Several sets can hold the pair that is farthest apart: the order then decides, but not over the diameter.
    after = order[least_diameter(squared_NN[np.ix_(order, order)], 6)]
    assert squared_NN[np.ix_(after, after)].max() == squared_NN[np.ix_(before, before)].max()


@pytest.mark.parametrize("num_dimensions", [1, 2, 5, 500])
def test_a_hundred_updates_of_which_45_lie(num_dimensions: int) -> None:
    updates_ND = np.random.default_rng(0).standard_normal((100, num_dimensions))
    lying_ND = updates_ND.copy()
    lying_ND[:45] += 20
    decision = MinimumDiameter(45).judge(geometry(lying_ND), uniform(100))
    assert decision.selected == tuple(range(45, 100))
    assert decision.scores_N is not None
    assert decision.scores_N[:45].min() > decision.scores_N[45:].max()
    chosen = list(MinimumDiameter(45).judge(geometry(updates_ND), uniform(100)).selected)
    squared_NN = geometry(updates_ND).squared_NN
    diameter = squared_NN[np.ix_(chosen, chosen)].max()
    for out in chosen:  # no single exchange does better
        for other in set(range(100)) - set(chosen):
            swapped = [other if index == out else index for index in chosen]
            assert squared_NN[np.ix_(swapped, swapped)].max() >= diameter


def test_a_thousand_updates_overflow_no_stack() -> None:
    place_N = np.arange(1000.0)
    squared_NN = (place_N[:, None] - place_N[None, :]) ** 2
    assert least_diameter(squared_NN, 501) == list(range(501))


def test_infinite_distances_equal_updates_and_one_alone() -> None:
    squared_NN = np.full((5, 5), np.inf)
    np.fill_diagonal(squared_NN, 0)
    assert least_diameter(squared_NN, 3) == [0, 1, 2]
    assert least_diameter(np.zeros((5, 5)), 3) == [0, 1, 2]
    assert MinimumDiameter(0).judge(geometry(np.ones((1, 2))), uniform(1)).selected == (0,)
    with pytest.raises(TooFewUpdates, match="mda with f = 2 needs n > 2f: at least 5 updates, got 4"):
        MinimumDiameter(2).judge(geometry(np.ones((4, 2))), uniform(4))
