from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from foedus.errors import ConfigError, QuorumNotMet
from foedus.privacy.sharing.field import P, interpolation, matrix_product
from foedus.privacy.sharing.packing import (
    Packing,
    at_data_points,
    deal,
    degree_masks,
    hidden,
    hidden_blocks,
    vanishing_masks,
    zero_sum_masks,
)
from hypothesis import given
from hypothesis import strategies as st
from shared_updates import packings


def value(points: list[int], values: list[int], at: int) -> int:
    """The polynomial of least degree with these values, by Lagrange's formula on whole numbers."""
    result = 0
    for i, point in enumerate(points):
        term = values[i]
        for other in points:
            if other != point:
                term = term * (at - other) * pow(point - other, -1, P) % P
        result += term
    return result % P


@given(packings(), st.lists(st.integers(0, P - 1), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_any_degree_plus_one_holders_give_the_vector(packing: Packing, vector: list[int], random: object) -> None:
    rows = hidden_blocks(packing, np.array(vector, np.uint64), os.urandom)
    shares = deal(packing, rows)
    length = -(-len(vector) // packing.blocks)
    assert shares.shape == (packing.holders, length)
    padded = vector + [0] * (length * packing.blocks - len(vector))
    assert rows[: packing.blocks].reshape(-1).tolist() == padded
    # The share is the value at K + T + 1 + j of the polynomial with the blocks at 1 to K.
    points = list(range(1, packing.blocks + packing.colluders + 1))
    for j, column in itertools.product((0, packing.holders - 1), (0, length - 1)):
        expected = value(points, rows[:, column].tolist(), packing.blocks + packing.colluders + 1 + j)
        assert int(shares[j, column]) == expected
    some = random.sample(range(packing.holders), packing.degree + 1)  # type: ignore[attr-defined]
    assert at_data_points(packing, some, shares[some], packing.degree).reshape(-1).tolist() == padded
    with pytest.raises(QuorumNotMet, match="expected at least"):
        at_data_points(packing, some[1:], shares[some[1:]], packing.degree)


@given(packings())
def test_masks_are_of_their_degree_and_vanish_where_they_say(packing: Packing) -> None:
    everyone = list(range(packing.holders))
    needed = packing.product_degree + 1
    for make in (vanishing_masks, zero_sum_masks, degree_masks):
        masks = make(packing, 3, os.urandom)
        degree = packing.degree if make is degree_masks else packing.product_degree
        assert masks.shape == (packing.holders, 3)
        assert masks.any()
        # Any degree + 1 holders tell what the others have.
        known, others = packing.holder_points(everyone[: degree + 1]), packing.holder_points(everyone[degree + 1 :])
        # And no fewer holders do.
        fewer = matrix_product(interpolation(known[:-1], known[-1:]), masks[:degree])
        assert (fewer != masks[degree]).all()
        if others:
            told = matrix_product(interpolation(known, others), masks[: degree + 1])
            np.testing.assert_array_equal(told, masks[degree + 1 :])
    for column in range(3):
        at = [
            value(packing.holder_points(everyone[:needed]), masks[:needed, column].tolist(), k)
            for masks in (vanishing_masks(packing, 3, os.urandom), zero_sum_masks(packing, 3, os.urandom))
            for k in packing.data_points
        ]
        assert at[: packing.blocks] == [0] * packing.blocks
        assert sum(at[packing.blocks :]) % P == 0
        if packing.blocks > 1:
            assert any(at[packing.blocks :])


def determinant(matrix: list[list[int]]) -> int:
    if not matrix:
        return 1
    first, *rest = matrix
    minors = (determinant([[*row[:i], *row[i + 1 :]] for row in rest]) for i in range(len(first)))
    return sum((-1) ** i * entry * minor for i, (entry, minor) in enumerate(zip(first, minors, strict=True))) % P


@pytest.mark.parametrize(("blocks", "colluders"), [(1, 1), (1, 3), (2, 2), (3, 2), (4, 3)])
def test_the_shares_of_any_t_holders_are_uniform_whatever_was_shared(blocks: int, colluders: int) -> None:
    # The map from the uniform rows to the shares of T holders is one to one, so that the shares are uniform too.
    packing = Packing(2 * (blocks + colluders - 1) + 3, blocks, colluders)
    everything = np.eye(blocks + colluders, dtype=np.uint64)
    shares = deal(packing, everything).tolist()
    for coalition in itertools.combinations(range(packing.holders), colluders):
        assert determinant([shares[j][blocks:] for j in coalition]) != 0


def test_what_hides_is_drawn_afresh() -> None:
    packing = Packing(7, 2, 2)
    vector = np.zeros(4, np.uint64)
    assert (hidden_blocks(packing, vector, os.urandom)[2:] != hidden_blocks(packing, vector, os.urandom)[2:]).all()
    rows = np.arange(6, dtype=np.uint64).reshape(2, 3)
    np.testing.assert_array_equal(hidden(packing, rows, os.urandom)[:2], rows)


@pytest.mark.parametrize(
    ("n", "K", "T", "D", "E"), [(9, 2, 2, 1, 1), (19, 4, 4, 1, 2), (6, 2, 2, 0, 0), (2, 1, 1, 0, 0)]
)
def test_too_few_holders_are_refused(n: int, K: int, T: int, D: int, E: int) -> None:
    with pytest.raises(ConfigError, match="too few") as refused:
        Packing(n, K, T, D, E)
    assert f"asks for {n + 1}" in refused.value.hint
    assert Packing(n + 1, K, T, D, E).answers_needed == n + 1 - D


@pytest.mark.parametrize("numbers", [(0, 1, 1), (9, 0, 1), (9, 1, 0), (9, 1, 1, -1), (9, 1, 1, 0, -1)])
def test_numbers_out_of_range_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="expected at least"):
        Packing(*numbers)
