from __future__ import annotations

import os

import numpy as np
import pytest
from foedus.errors import InvalidUpdate, ProtocolError
from foedus.privacy.sharing import field
from foedus.privacy.sharing.field import P
from hypothesis import given, settings
from hypothesis import strategies as st

# Elements at the edges of the field and of its limbs, and any others.
EDGES = [0, 1, 2, (1 << 21) - 1, 1 << 21, (1 << 42) - 1, 1 << 42, (1 << 60) - 1, 1 << 60, P - 2, P - 1]
an_element = st.sampled_from(EDGES) | st.integers(0, P - 1)


def matrices(rows: int, columns: int) -> st.SearchStrategy[np.ndarray]:
    row = st.lists(an_element, min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(
        lambda values: np.array(values, np.uint64).reshape(rows, columns)
    )


def product_by_definition(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return ((left.astype(object) @ right.astype(object)) % P).astype(np.uint64)


@given(st.lists(st.tuples(an_element, an_element), min_size=1))
def test_sums_and_products_are_those_of_whole_numbers(pairs: list[tuple[int, int]]) -> None:
    left, right = np.array(pairs, np.uint64).T
    assert field.add(left, right).tolist() == [(a + b) % P for a, b in pairs]
    assert field.multiply(left, right).tolist() == [a * b % P for a, b in pairs]
    assert field.negate(left).tolist() == [-a % P for a, _ in pairs]
    assert field.total(left[:, None]).tolist() == [sum(a for a, _ in pairs) % P]


@given(st.data())
def test_matrix_products_are_those_of_whole_numbers(data: st.DataObject) -> None:
    rows, inner, columns = (data.draw(st.integers(1, 6)) for _ in range(3))
    left, right = data.draw(matrices(rows, inner)), data.draw(matrices(inner, columns))
    np.testing.assert_array_equal(field.matrix_product(left, right), product_by_definition(left, right))
    np.testing.assert_array_equal(field.inner_products(left, right.T), product_by_definition(left, right))
    np.testing.assert_array_equal(field.inner_products(left, left), product_by_definition(left, left.T))


def test_long_sums_of_the_largest_limbs_stay_exact() -> None:
    # Longer than several spans, and limbs about as large as can be: an inexact sum or an overflow would show.
    length = (1 << 19) + (1 << 17) + 2047
    rows = P - 1 - np.random.default_rng(0).integers(0, 999, (2, length)).astype(np.uint64)
    less = rows.astype(object) - P  # the same modulo p, and small
    expected = ((less @ less.T) % P).tolist()
    assert field.matrix_product(rows, rows.T).tolist() == expected
    assert field.inner_products(rows, rows).tolist() == expected
    assert field.inner_products(rows, rows[:1]).tolist() == [line[:1] for line in expected]
    assert field.total(rows.T).tolist() == (less.sum(axis=1) % P).tolist()


def test_wide_products_are_those_of_whole_numbers() -> None:
    left, right = field.uniform(os.urandom, 5, 7), field.uniform(os.urandom, 7, 20_001)
    product = field.matrix_product(left, right)
    for columns in (slice(0, 3), slice(13_105, 13_109), slice(19_999, 20_001)):
        np.testing.assert_array_equal(product[:, columns], product_by_definition(left, right[:, columns]))
    assert field.matrix_product(left[:, :0], right[:0]).tolist() == [[0] * 20_001] * 5


@given(st.data())
def test_products_with_signs_are_those_of_whole_numbers(data: st.DataObject) -> None:
    rows = data.draw(matrices(3, 8))
    signs = np.array(data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=16, max_size=16))).reshape(2, 8)
    blocks = [signs[:, :5].astype(float), signs[:, 5:].astype(float)]
    expected = (rows.astype(object) @ signs.T.astype(object)) % P
    assert field.ternary_product(rows, blocks).tolist() == expected.tolist()


@given(st.lists(st.integers(-(P >> 1), P >> 1)))
def test_integers_come_back(integers: list[int]) -> None:
    elements = field.from_integers(np.array(integers, np.int64))
    assert elements.tolist() == [integer % P for integer in integers]
    assert field.to_integers(elements).tolist() == integers


@pytest.mark.parametrize("integer", [(P >> 1) + 1, -(P >> 1) - 1, 2**63 - 1, -(2**63)])
def test_an_integer_that_would_come_back_as_another_is_refused(integer: int) -> None:
    with pytest.raises(InvalidUpdate, match="too large to be shared"):
        field.from_integers(np.array([0, integer]))


@given(st.lists(an_element))
def test_elements_travel_as_eight_bytes_each(elements: list[int]) -> None:
    data = field.to_bytes(np.array(elements, np.uint64))
    assert data == b"".join(element.to_bytes(8, "little") for element in elements)
    assert field.from_bytes(data, len(elements)).tolist() == elements
    with pytest.raises(ProtocolError, match="expected"):
        field.from_bytes(data, len(elements) + 1)


@pytest.mark.parametrize("word", [P, P + 1, 2**64 - 1])
def test_a_word_that_is_no_element_is_refused(word: int) -> None:
    with pytest.raises(ProtocolError, match="not below"):
        field.from_bytes(word.to_bytes(8, "little"), 1)


def test_the_word_p_is_drawn_again() -> None:
    words = iter([[5, P, 2**64 - 1, (1 << 63) | 7], [P, 9], [3]])
    drawn = field.uniform(lambda count: b"".join(word.to_bytes(8, "little") for word in next(words)), 2, 2)
    assert drawn.tolist() == [[5, 3], [9, 7]]  # the top three bits are not used


@settings(max_examples=20)
@given(st.lists(st.integers(0, P - 1), min_size=1, max_size=6), st.integers(0, P - 1))
def test_interpolation_gives_the_polynomials_value(coefficients: list[int], at: int) -> None:
    def value(x: int) -> int:
        return sum(c * x**power for power, c in enumerate(coefficients)) % P

    points = [3 * i + 1 for i in range(len(coefficients))]
    values = np.array([[value(point)] for point in points], np.uint64)
    assert field.matrix_product(field.interpolation(points, [at]), values).tolist() == [[value(at)]]
