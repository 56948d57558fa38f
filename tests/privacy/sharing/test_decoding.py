from __future__ import annotations

import os
import random

import numpy as np
import pytest
from foedus.privacy.sharing.decoding import wrong_by_column, wrong_positions, wrong_rows
from foedus.privacy.sharing.field import P, uniform
from hypothesis import given
from hypothesis import strategies as st


def value(coefficients: list[int], point: int) -> int:
    return sum(c * pow(point, power, P) for power, c in enumerate(coefficients)) % P


def word(length: int, degree: int) -> tuple[list[int], list[int]]:
    coefficients = uniform(os.urandom, degree + 1).tolist()
    points = list(range(9, 9 + length))
    return points, [value(coefficients, point) for point in points]


@given(
    st.integers(0, 12), st.integers(0, 5), st.integers(0, 3), st.data(), st.sampled_from(["any", "zero", "constant"])
)
def test_up_to_e_wrong_values_are_found(degree: int, errors: int, more: int, data: st.DataObject, kind: str) -> None:
    points, values = word(degree + 1 + 2 * errors + more, degree)
    if kind != "any":
        values = [0 if kind == "zero" else 7] * len(points)
    positions = st.sets(st.integers(0, len(points) - 1), max_size=errors)
    wrong = sorted(data.draw(positions))
    for position in wrong:
        values[position] = (values[position] + data.draw(st.integers(1, P - 1))) % P
    assert wrong_positions(points, values, degree, errors) == tuple(wrong)


@pytest.mark.parametrize(("degree", "errors"), [(2, 0), (6, 1), (14, 2), (31, 10), (8, 5)])
def test_more_wrong_values_are_undecodable(degree: int, errors: int) -> None:
    points, values = word(degree + 2 + 2 * errors, degree)
    for position in range(errors + 1):
        values[position] = int(uniform(os.urandom, 1)[0])
    assert wrong_positions(points, values, degree, errors) is None


@pytest.mark.parametrize(("degree", "errors"), [(2, 0), (6, 1), (14, 2)])
def test_a_polynomial_of_one_degree_more_is_undecodable(degree: int, errors: int) -> None:
    points, values = word(degree + 5 + 2 * errors, degree + 1)
    assert wrong_positions(points, values, degree, errors) is None
    assert wrong_positions(points, values, degree + 1, errors) == ()


def test_too_few_values_for_so_many_errors_are_undecodable() -> None:
    points, values = word(8, 4)
    assert wrong_positions(points, values, 4, 1) == ()
    assert wrong_positions(points, values, 4, 2) is None
    assert wrong_by_column(points, np.array([values], np.uint64).T, 4, 2) == [None]


def test_more_liars_than_e_who_agree_with_each_other_can_forge_a_word() -> None:
    # Not a flaw of the decoder: there are two words within reach of each other. E must bound the liars.
    degree, errors = 4, 2
    points, values = word(degree + 1 + 2 * errors, degree)
    vanishing = [1]
    for point in points[:degree]:
        vanishing = [(a - point * b) % P for a, b in zip([0, *vanishing], [*vanishing, 0], strict=True)]
    liars = (degree, degree + 1, degree + 2)
    for liar in liars:
        values[liar] = (values[liar] + value(vanishing, points[liar])) % P
    assert len(liars) == errors + 1
    assert wrong_positions(points, values, degree, errors) == (degree + 3, degree + 4)


def test_one_decoding_finds_who_is_wrong_in_any_column() -> None:
    columns = [word(11, 4) for _ in range(40)]
    points = columns[0][0]
    answers = np.array([values for _, values in columns], np.uint64).T.copy()
    assert wrong_rows(points, answers, 4, 3, os.urandom) == ()
    answers[2, 17] ^= np.uint64(1)
    answers[9] = uniform(os.urandom, 40)
    assert wrong_rows(points, answers, 4, 3, os.urandom) == (2, 9)
    # In no column are more than three wrong, but four holders are.
    answers[5, 3], answers[6, 4] = 1, 2
    assert wrong_rows(points, answers, 4, 3, os.urandom) is None


def test_columns_are_decoded_each_by_itself() -> None:
    columns = [word(9, 4)[1] for _ in range(4)]
    points = word(9, 4)[0]
    answers = np.array(columns, np.uint64).T.copy()
    answers[8, 1] ^= np.uint64(1)
    answers[0, 2] ^= np.uint64(1)
    answers[:5, 3] = random.Random(0).sample(range(P), 5)
    assert wrong_by_column(points, answers, 4, 2) == [(), (8,), (0,), None]
