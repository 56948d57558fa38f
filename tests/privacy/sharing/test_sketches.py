from __future__ import annotations

import os

import numpy as np
import pytest
from by_definition import geometry, uniform
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.krum import MultiKrum
from foedus.privacy.sharing.field import from_integers
from foedus.privacy.sharing.field import uniform as elements
from foedus.privacy.sharing.packing import Packing
from foedus.privacy.sharing.products import assembled
from foedus.privacy.sharing.selection import implausible, squared_distances
from foedus.privacy.sharing.sketches import (
    BUCKETS,
    PLAUSIBLE,
    ROWS,
    TABLES,
    agree,
    coarse,
    shift_for,
    sketch,
    too_long,
    unit_of,
)
from foedus.privacy.sharing.sums import summed
from hypothesis import given
from hypothesis import strategies as st
from shared_updates import dealt, stream

BOUND = 1 << 20
SHIFT = shift_for(BOUND)


def matrix(columns: int, seed: str) -> np.ndarray:
    """J for up to 65,536 coordinates, as it is defined."""
    drawn = np.frombuffer(stream(seed)(9 * 65_536), np.uint8).reshape(9, 65_536)[:, :columns]
    J = np.zeros((ROWS, columns))
    for table in range(TABLES):
        J[BUCKETS * table + drawn[table].astype(int), range(columns)] = 1 - 2.0 * (drawn[TABLES] >> table & 1)
    return J


def honest_and_reversed(n: int, f: int, d: int, seed: int = 3) -> np.ndarray:
    """Updates of norms up to the bound, the first f against the others' direction."""
    rng = np.random.default_rng(seed)
    updates_ND = 0.7 * rng.standard_normal(d) + (0.7 + 0.4 * (np.arange(n)[:, None] % 3) / 3) * rng.standard_normal(
        (n, d)
    )
    updates_ND[:f] *= -1.2
    return np.floor(updates_ND * BOUND / (1.5 * np.sqrt(d)) + rng.random((n, d))).astype(np.int32)


def gram_of(sketches_NS: np.ndarray) -> np.ndarray:
    return sketches_NS @ sketches_NS.T


def chosen(gram_NN: np.ndarray, f: int) -> tuple[int, ...]:
    distances = Geometry(squared_distances(gram_NN, PLAUSIBLE, unit_of(SHIFT)))
    selected = MultiKrum(f).judge(distances, uniform(len(gram_NN))).selected
    assert selected is not None
    return selected


@pytest.mark.parametrize("columns", [1, 300, 65_536])
def test_a_sketch_is_the_product_with_its_matrix(columns: int) -> None:
    update = np.random.default_rng(0).integers(-(2**31), 2**31, columns).astype(np.int32)
    np.testing.assert_array_equal(sketch(update, stream("J")), matrix(columns, "J") @ update.astype(float))


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1])
def test_the_largest_values_are_added_exactly(value: int) -> None:
    columns = 3 * 65_536 + 17
    ones = sketch(np.ones(columns, np.int32), stream("J"))
    np.testing.assert_array_equal(sketch(np.full(columns, value, np.int32), stream("J")), ones * value)
    assert np.abs(ones).sum() <= TABLES * columns


def test_every_coordinate_counts_once_in_each_table() -> None:
    # The last of a long update, in the third chunk: eight entries of ±1, one in each table.
    update = np.zeros(2 * 65_536 + 9, np.int32)
    update[-1] = 1
    tables = sketch(update, stream("J")).reshape(TABLES, BUCKETS)
    np.testing.assert_array_equal(np.abs(tables).sum(axis=1), np.ones(TABLES))


@given(st.integers(1, 1 << 40))
def test_the_shift_is_the_least_that_makes_the_norm_fit(bound: int) -> None:
    shift = shift_for(bound)
    assert 8 * bound**2 <= 1 << (36 + 2 * shift)
    assert shift == 0 or 8 * bound**2 > 1 << (36 + 2 * (shift - 1))


@given(st.lists(st.integers(-(1 << 50), 1 << 50), min_size=1), st.integers(0, 8), st.integers(1, 64))
def test_honest_sketches_agree_with_their_sum_and_others_do_not(values: list[int], shift: int, count: int) -> None:
    exact = np.array(values)
    rounded = coarse(exact, shift)
    assert (np.abs(exact - (rounded << shift)) <= (1 << shift) // 2).all()
    assert agree(count * exact, count * rounded, shift, count)
    room = count * (1 << shift) // 2 if shift else 0
    off = (rounded << shift) * count
    assert agree(off + room, rounded * count, shift, count)
    assert not agree(off + room + 1, rounded * count, shift, count)
    assert not agree(off - room - 1, rounded * count, shift, count)


def test_distances_are_those_of_the_updates_up_to_a_few_per_cent() -> None:
    updates_ND = honest_and_reversed(20, 5, 20_000)
    sketches_NS = np.array([coarse(sketch(update_D, stream("J")), SHIFT) for update_D in updates_ND])
    estimated = squared_distances(gram_of(sketches_NS), PLAUSIBLE, unit_of(SHIFT))
    exact = geometry(updates_ND).squared_PP
    off = (estimated / np.where(exact > 0, exact, 1))[np.triu_indices(21, 1)] - 1
    assert np.sqrt((off**2).mean()) < np.sqrt(2 / ROWS) * 1.2
    assert np.abs(off).max() < 0.12


@pytest.mark.parametrize(("n", "f"), [(10, 2), (20, 5), (50, 12)])
def test_the_choice_is_that_by_exact_distances_where_attackers_stand_out(n: int, f: int) -> None:
    updates_ND = honest_and_reversed(n, f, 5000)
    sketches_NS = np.array([coarse(sketch(update_D, stream("J")), SHIFT) for update_D in updates_ND])
    selected = chosen(gram_of(sketches_NS), f)
    exact = MultiKrum(f).judge(geometry(updates_ND), uniform(n)).selected
    assert exact is not None
    assert min(selected) >= f
    assert len(set(selected) & set(exact)) >= 0.9 * len(exact)


def test_from_masked_uploads_to_the_check_of_the_sum() -> None:
    packing = Packing(10, 1, 2, 1, 2)
    updates_ND = honest_and_reversed(10, 2, 30_000)
    sketches_NS = np.array([coarse(sketch(update_D, stream("J")), SHIFT) for update_D in updates_ND])
    round_ = dealt(packing, sketches_NS)
    round_.lies = {4: 99, 8: 1}
    holders = list(range(1, 10))
    found = assembled(packing, 10, holders, round_.products(holders), os.urandom)
    assert found is not None
    assert found.liars == (4, 8)
    np.testing.assert_array_equal(found.gram_NN, gram_of(sketches_NS))
    assert implausible(found.gram_NN, PLAUSIBLE, 7) == ()
    assert too_long(found.gram_NN, SHIFT, BOUND) == ()
    selected = list(chosen(found.gram_NN, 2))
    answers = round_.sums(holders, [int(i in selected) for i in range(10)])
    sketched = summed(packing, ROWS, len(selected) << 30, holders, answers, os.urandom)
    assert sketched is not None
    total_D = updates_ND[selected].sum(axis=0)
    assert agree(sketch(total_D, stream("J")), sketched.sum_D, SHIFT, len(selected))


@pytest.mark.adversarial
def test_an_honest_sketch_for_another_update_does_not_agree_with_the_sum() -> None:
    updates_ND = honest_and_reversed(10, 1, 5000)
    sketches_NS = np.array([coarse(sketch(update_D, stream("J")), SHIFT) for update_D in updates_ND])
    sketches_NS[0] = sketches_NS[1]  # what is judged
    selected = chosen(gram_of(sketches_NS), 1)
    assert 0 in selected
    total_D = updates_ND[list(selected)].sum(axis=0)
    assert not agree(sketch(total_D, stream("J")), sketches_NS[list(selected)].sum(axis=0), SHIFT, len(selected))


@pytest.mark.adversarial
@pytest.mark.parametrize(("drawn", "works"), [("known in advance", True), ("from the uploads", False)])
def test_a_vector_in_the_kernel_of_a_guessed_matrix_is_seen_by_one_drawn_later(drawn: str, works: bool) -> None:
    updates_ND = honest_and_reversed(10, 0, 4000)
    J = matrix(4000, "known in advance")
    hidden_D = np.random.default_rng(5).standard_normal(4000)
    hidden_D -= J.T @ np.linalg.solve(J @ J.T + 1e-6 * np.eye(ROWS), J @ hidden_D)
    hidden_D *= 3 * np.linalg.norm(updates_ND[1].astype(float)) / np.linalg.norm(hidden_D)
    updates_ND[0] = updates_ND[1] + np.rint(hidden_D).astype(np.int32)

    sketches_NS = np.array([coarse(sketch(update_D, stream(drawn)), SHIFT) for update_D in updates_ND])
    selected = chosen(gram_of(sketches_NS), 2)
    assert (0 in selected) is works
    if works:
        total_D = updates_ND[list(selected)].sum(axis=0)
        sketched_S = sketches_NS[list(selected)].sum(axis=0)
        assert agree(sketch(total_D, stream(drawn)), sketched_S, SHIFT, len(selected))
        honest = MultiKrum(2).judge(geometry(updates_ND), uniform(10)).selected
        assert honest is not None
        assert 0 not in honest


@pytest.mark.adversarial
def test_a_sketch_that_wraps_around_is_implausible() -> None:
    sketches = [from_integers(sketch(update_D, stream("J")) >> SHIFT) for update_D in honest_and_reversed(10, 0, 5000)]
    sketches[4] = elements(os.urandom, ROWS)
    packing = Packing(10, 1, 2, 1, 2)
    round_ = dealt(packing, sketches)
    holders = list(range(10))
    found = assembled(packing, 10, holders, round_.products(holders), os.urandom)
    assert found is not None
    assert implausible(found.gram_NN, PLAUSIBLE, 7) == (4,)
    assert np.isinf(np.delete(squared_distances(found.gram_NN, PLAUSIBLE)[4], 4)).sum() > 7


def test_a_sketch_tells_an_update_that_is_too_long() -> None:
    updates_ND = honest_and_reversed(10, 0, 5000).astype(np.int64)
    lengths_N = np.linalg.norm(updates_ND.astype(float), axis=1)
    updates_ND = np.rint(updates_ND * (BOUND / lengths_N)[:, None]).astype(np.int64)  # as long as allowed
    updates_ND[7] = updates_ND[7] * 13 // 10
    sketches_NS = np.array([coarse(sketch(update_D, stream("J")), SHIFT) for update_D in updates_ND])
    assert too_long(gram_of(sketches_NS), SHIFT, BOUND) == (7,)
