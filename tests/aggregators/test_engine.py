from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from foedus.aggregators.engine import BLOCK_BYTES, MAX_BLOCK_COLUMNS, block_columns, combine
from foedus.aggregators.rows import ArrayRows
from foedus.errors import InvalidUpdate
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

FLOATS = st.floats(-1e6, 1e6, width=32)


def _combined(updates_ND: np.ndarray, weights_N: np.ndarray, block: int | None = None) -> np.ndarray:
    blocks = list(combine(ArrayRows(updates_ND), weights_N, block))
    assert [start for start, _ in blocks] == list(np.cumsum([0, *(row_C.size for _, row_C in blocks)])[:-1])
    return np.concatenate([row_C for _, row_C in blocks])


@given(st.data())
def test_the_block_leaves_every_bit_alone(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 70)))
    updates_ND = data.draw(hnp.arrays(np.float32, shape, elements=FLOATS))
    weights_N = data.draw(hnp.arrays(np.float64, shape[0], elements=st.floats(0, 1)))
    whole_D = _combined(updates_ND, weights_N)
    for block in data.draw(st.lists(st.integers(1, 80), min_size=1, max_size=4)):
        assert _combined(updates_ND, weights_N, block).tobytes() == whole_D.tobytes()


@given(st.data())
def test_the_order_of_the_rows_hardly_matters(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 8), st.integers(1, 20)))
    updates_ND = data.draw(hnp.arrays(np.float32, shape, elements=FLOATS))
    weights_N = data.draw(hnp.arrays(np.float64, shape[0], elements=st.floats(0, 1)))
    order = np.array(data.draw(st.permutations(range(shape[0]))))
    scale = np.abs(updates_ND.astype(np.float64)).T @ weights_N
    difference = _combined(updates_ND, weights_N).astype(np.float64) - _combined(updates_ND[order], weights_N[order])
    # One float32 rounding of each result, plus float64 rounding in proportion to the terms.
    result = np.abs(_combined(updates_ND, weights_N).astype(np.float64))
    assert (np.abs(difference) <= 2**-23 * result + 1e-14 * scale + 1e-44).all()


def test_sums_are_exact_where_float32_would_lose_everything() -> None:
    updates_ND = np.array([[1e8], [1.0], [-1e8]], np.float32)
    exact = sum(Fraction(float(value)) * Fraction(1, 4) for value in updates_ND[:, 0])
    assert _combined(updates_ND, np.full(3, 0.25))[0] == float(exact) == 0.25


def test_products_are_not_rounded_to_float32() -> None:
    updates_ND = np.array([[1e8], [-33333334], [1.0]], np.float32)
    weights_N = np.array([0.1, 0.3, 0.6])
    exact = sum(Fraction(float(x)) * Fraction(float(w)) for x, w in zip(updates_ND[:, 0], weights_N, strict=True))
    assert _combined(updates_ND, weights_N)[0] == pytest.approx(float(exact), rel=1e-7)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_row_of_weight_zero_leaves_no_trace(poison: float) -> None:
    updates_ND = np.array([[1, 2], [poison, poison], [3, 4]], np.float32)
    np.testing.assert_array_equal(_combined(updates_ND, np.array([0.5, 0.0, 0.5])), [2, 3])


def test_blocks_already_given_stay_as_they_were() -> None:
    blocks = combine(ArrayRows(np.arange(8, dtype=np.float32)[None]), np.ones(1), 4)
    _, first_C = next(blocks)
    next(blocks)
    np.testing.assert_array_equal(first_C, [0, 1, 2, 3])


@pytest.mark.parametrize("weights_N", [[0.5], [0.5, np.nan], [0.5, np.inf], [[0.5, 0.5]]])
def test_weights_that_do_not_fit_are_refused_at_once(weights_N: list[float]) -> None:
    with pytest.raises(InvalidUpdate, match="2 updates need as many finite weights"):
        combine(ArrayRows(np.ones((2, 3), np.float32)), np.array(weights_N))


def test_the_block_shrinks_with_the_number_of_rows() -> None:
    assert block_columns(10) == MAX_BLOCK_COLUMNS
    assert 4 * 1000 * block_columns(1000) <= BLOCK_BYTES
    assert block_columns(10**9) >= 1
