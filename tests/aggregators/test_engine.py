from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from foedus.aggregators import engine
from foedus.aggregators.decision import Closest, Combination, Coordinatewise, Middle, WeightedSum
from foedus.aggregators.engine import (
    BLOCK_BYTES,
    MAX_BLOCK_COLUMNS,
    NotFinite,
    block_columns,
    combine,
    combine_then,
    rows_not_finite,
    sampled_columns,
    squared_distances,
    squared_norms,
)
from foedus.aggregators.kernel import CHUNK_COLUMNS
from foedus.aggregators.kernel_numpy import NumpyKernel
from foedus.aggregators.rows import ArrayRows, FileRows, MappedRows, Rows, Window
from foedus.aggregators.workers import Threads
from foedus.errors import InvalidUpdate
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

FLOATS = st.floats(-1e6, 1e6, width=32)


def _combined(updates_ND: np.ndarray, how: np.ndarray | Combination, block: int | None = None) -> np.ndarray:
    how = WeightedSum(how) if isinstance(how, np.ndarray) else how
    blocks = list(combine(ArrayRows(updates_ND), how, block=block))
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
    blocks = combine(ArrayRows(np.arange(8, dtype=np.float32)[None]), WeightedSum(np.ones(1)), block=4)
    _, first_C = next(blocks)
    next(blocks)
    np.testing.assert_array_equal(first_C, [0, 1, 2, 3])


@pytest.mark.parametrize("weights_N", [[0.5], [0.5, np.nan], [0.5, np.inf], [[0.5, 0.5]]])
def test_weights_that_do_not_fit_are_refused_at_once(weights_N: list[float]) -> None:
    with pytest.raises(InvalidUpdate, match="2 updates need as many finite weights"):
        combine(ArrayRows(np.ones((2, 3), np.float32)), WeightedSum(np.array(weights_N)))


def test_the_block_shrinks_with_the_number_of_rows() -> None:
    assert block_columns(10) == MAX_BLOCK_COLUMNS
    assert 4 * 1000 * block_columns(1000) <= BLOCK_BYTES
    assert block_columns(10**9) >= 1
    assert block_columns(20) % CHUNK_COLUMNS == block_columns(1000) % CHUNK_COLUMNS == 0


COMBINATIONS: list[Combination] = [
    WeightedSum(np.array([0.5, 0.0, 0.25, 0.125, 0.0, 0.125])),
    Coordinatewise(Middle(2), (0, 1, 2, 3, 4, 5)),
    Coordinatewise(Middle(1), (0, 2, 4)),
    Coordinatewise(Closest(3), (0, 1, 3, 4, 5)),
    Coordinatewise(
        Middle(1), (0, 1, 2), np.array([[0.5, 0.5, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0.5, 0.5]])
    ),
]
KINDS = ["sum", "middle", "some", "closest", "mixed"]


def _by_hand(updates_ND: np.ndarray, combination: Combination) -> np.ndarray:
    wide_ND = updates_ND.astype(np.float64)
    if isinstance(combination, WeightedSum):
        return combination.weights_N @ wide_ND
    if combination.mix_MN is not None:
        wide_ND = (combination.mix_MN @ wide_ND).astype(np.float32).astype(np.float64)
    wide_ND = np.sort(wide_ND[list(combination.taken)], axis=0)
    match combination.statistic:
        case Middle(drop):
            return wide_ND[drop : len(wide_ND) - drop].mean(axis=0)
        case Closest(count):
            order = np.argsort(np.abs(wide_ND - np.median(wide_ND, axis=0)), axis=0, kind="stable")
            return np.take_along_axis(wide_ND, order[:count], axis=0).mean(axis=0)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=KINDS)
def test_combinations_are_what_they_say(combination: Combination) -> None:
    updates_ND = np.random.default_rng(5).standard_normal((6, 3000), dtype=np.float32)
    np.testing.assert_allclose(
        _combined(updates_ND, combination), _by_hand(updates_ND, combination), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("combination", COMBINATIONS, ids=KINDS)
@pytest.mark.parametrize("block", [1, 7, 1000, 1024, 5000])
def test_no_combination_depends_on_block_threads_or_kernel(combination: Combination, block: int) -> None:
    rows = ArrayRows(np.random.default_rng(6).standard_normal((6, 4097), dtype=np.float32))
    usual = np.concatenate([row_C for _, row_C in combine(rows, combination)])
    other = combine(rows, combination, block=block, workers=Threads(3), kernel=NumpyKernel())
    assert np.concatenate([row_C for _, row_C in other]).tobytes() == usual.tobytes()


def test_a_row_that_is_not_taken_is_not_read() -> None:
    updates_ND = np.array([[1, 2], [np.nan, np.inf], [3, 4]], np.float32)
    np.testing.assert_array_equal(_combined(updates_ND, Coordinatewise(Middle(0), (0, 2))), [2, 3])


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("statistic", [Middle(1), Closest(2)])
def test_a_coordinate_rule_never_orders_what_is_not_finite(statistic: Middle | Closest, poison: float) -> None:
    updates_ND = np.zeros((3, 200), np.float32)
    updates_ND[1, 150] = poison
    with pytest.raises(NotFinite):
        _combined(updates_ND, Coordinatewise(statistic, (0, 1, 2)))


def test_what_comes_then_happens_to_each_block_in_order() -> None:
    rows = ArrayRows(np.arange(10, dtype=np.float32)[None])
    seen = list(combine_then(lambda start, row_C: (start, float(row_C.sum())), rows, WeightedSum(np.ones(1)), block=4))
    assert seen == [(0, 6.0), (4, 22.0), (8, 17.0)]


def _exact_squared(updates_ND: np.ndarray) -> np.ndarray:
    points = np.vstack([updates_ND.astype(np.float64), np.zeros(updates_ND.shape[1])])
    return ((points[:, None] - points[None]) ** 2).sum(axis=2)


def test_distances_to_each_other_and_to_the_origin() -> None:
    updates_ND = np.random.default_rng(0).standard_normal((5, 2500), dtype=np.float32)
    squared_PP = squared_distances(ArrayRows(updates_ND))
    np.testing.assert_allclose(squared_PP, _exact_squared(updates_ND), rtol=1e-6)
    np.testing.assert_array_equal(squared_PP, squared_PP.T)
    np.testing.assert_array_equal(squared_norms(ArrayRows(updates_ND)), squared_PP[:-1, -1])


@pytest.mark.parametrize("block", [1, 1024, 3000, 4096])
def test_distances_do_not_depend_on_block_threads_or_kernel(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Shorter spans than in earnest, so that several are added up.
    monkeypatch.setattr(engine, "MAX_BLOCK_COLUMNS", 4096)
    rows = ArrayRows(np.random.default_rng(1).standard_normal((5, 9001), dtype=np.float32))
    usual = squared_distances(rows)
    other = squared_distances(rows, block=block, workers=Threads(3), kernel=NumpyKernel())
    assert other.tobytes() == usual.tobytes()


def test_updates_that_nearly_coincide_keep_their_distances() -> None:
    """‖x‖² + ‖y‖² - 2⟨x, y⟩ in float32 would be off by more than the distance itself."""
    rng = np.random.default_rng(2)
    updates_ND = (100 + 1e-3 * rng.standard_normal((4, 5000))).astype(np.float32)
    np.testing.assert_allclose(squared_distances(ArrayRows(updates_ND)), _exact_squared(updates_ND), rtol=1e-6)


def test_rows_far_away_do_not_touch_the_others() -> None:
    """Centring on the mean would: two rows scaled by 1e4 move it."""
    rng = np.random.default_rng(3)
    near_ND = (1 + 1e-5 * rng.standard_normal((6, 4000))).astype(np.float32)
    alone_PP = squared_distances(ArrayRows(near_ND[:4]))
    near_ND[4:] *= 1e4
    np.testing.assert_array_equal(squared_distances(ArrayRows(near_ND))[:4, :4], alone_PP[:4, :4])


def test_a_row_that_is_not_finite_or_too_far_leaves_the_other_pairs_alone() -> None:
    updates_ND = np.random.default_rng(4).standard_normal((5, 2000), dtype=np.float32)
    alone_PP = squared_distances(ArrayRows(updates_ND))
    updates_ND[1, 3], updates_ND[2] = np.nan, 3e38
    squared_PP = squared_distances(ArrayRows(updates_ND))
    kept = np.ix_([0, 3, 4, 5], [0, 3, 4, 5])
    np.testing.assert_array_equal(squared_PP[kept], alone_PP[kept])
    assert np.isinf(squared_PP[2, [0, 3, 4, 5]]).all()
    assert rows_not_finite(ArrayRows(updates_ND)) == (1,)


def test_columns_can_be_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BLOCK_BYTES", 1)
    updates_ND = np.random.default_rng(7).standard_normal((3, 5000), dtype=np.float32)
    columns_S = np.array([0, 1, 1023, 1024, 3000, 4999])
    np.testing.assert_array_equal(
        sampled_columns(ArrayRows(updates_ND), columns_S).updates_ND, updates_ND[:, columns_S]
    )


@pytest.mark.parametrize("kind", [FileRows, MappedRows])
@pytest.mark.parametrize("combination", COMBINATIONS, ids=KINDS)
def test_files_and_arrays_give_the_same_bits(tmp_path, kind, combination: Combination) -> None:
    updates_ND = np.random.default_rng(8).standard_normal((6, 3333), dtype=np.float32)
    for index, row_D in enumerate(updates_ND):
        (tmp_path / str(index)).write_bytes(b"12345678" + row_D.tobytes())
    files: Rows = kind(tuple(Window(tmp_path / str(index), 8) for index in range(6)), 3333)
    stored = np.concatenate([row_C for _, row_C in combine(files, combination, block=1024)])
    assert stored.tobytes() == _combined(updates_ND, combination).tobytes()
    assert squared_distances(files).tobytes() == squared_distances(ArrayRows(updates_ND)).tobytes()


def test_nothing_can_be_combined_of_no_rows() -> None:
    with pytest.raises(InvalidUpdate, match="at least one update"):
        _combined(np.empty((0, 3), np.float32), Coordinatewise(Middle(0), ()))
    np.testing.assert_array_equal(_combined(np.empty((0, 3), np.float32), np.empty(0)), np.zeros(3))
