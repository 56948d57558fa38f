"""Which holders lied: Reed-Solomon decoding of their answers.

Shape suffixes: H holders who answered, A answers of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .field import Elements, P, Stream, inner_products, interpolation, matrix_product, uniform


def wrong_positions(points: Sequence[int], values: Sequence[int], degree: int, errors: int) -> tuple[int, ...] | None:
    """Where values differ from the one polynomial of this degree that all but ``errors`` of them lie on.

    None if there is no such polynomial, or too few values to be sure of it: degree + 1 + 2 * errors.
    More wrong values than ``errors`` go unnoticed only if they were chosen to agree with each other.

    Gao 2003, "A new algorithm for decoding Reed-Solomon codes", algorithm 1.
    """
    if len(points) < degree + 1 + 2 * errors:
        return None
    older, newer = [1], _interpolated(points, values)
    for point in points:
        older = _times(older, [-point, 1])
    locator_older: list[int] = []
    locator = [1]
    while 2 * len(newer) > len(points) + degree + 1:  # the half-way point of Euclid's algorithm
        quotient, remainder = _divided(older, newer)
        older, newer = newer, remainder
        locator_older, locator = locator, _minus(locator_older, _times(quotient, locator))
    word, _ = _divided(newer, locator)
    if len(word) > degree + 1:
        return None
    wrong = tuple(i for i, point in enumerate(points) if _value(word, point) != values[i])
    return wrong if len(wrong) <= errors else None


def wrong_rows(
    points: Sequence[int], answers_HA: Elements, degree: int, errors: int, stream: Stream
) -> tuple[int, ...] | None:
    """The rows in which any of the A columns, each of values of a polynomial, is wrong; None if undecodable.

    One decoding serves for all columns: that of a combination of them by weights from ``stream``, which
    those who answer must not know. A wrong row is then missed with probability 2^-61.
    """
    weights = uniform(stream, 1, answers_HA.shape[1])
    return wrong_positions(points, inner_products(answers_HA, weights)[:, 0].tolist(), degree, errors)


def wrong_by_column(
    points: Sequence[int], answers_HA: Elements, degree: int, errors: int
) -> list[tuple[int, ...] | None]:
    """For each column what ``wrong_positions`` says of it."""
    known, others = list(points[: degree + 1]), list(points[degree + 1 :])
    if len(points) < degree + 1 + 2 * errors:
        return [None] * answers_HA.shape[1]
    off = np.zeros(answers_HA.shape[1], bool)
    if others:
        expected = matrix_product(interpolation(known, others), answers_HA[: degree + 1])
        off = (expected != answers_HA[degree + 1 :]).any(axis=0)
    columns = zip(answers_HA.T, off.tolist(), strict=True)
    return [wrong_positions(points, column.tolist(), degree, errors) if is_off else () for column, is_off in columns]


# Polynomials are lists of coefficients, the constant first, without zeros at the end; 0 is the empty list.


def _interpolated(points: Sequence[int], values: Sequence[int]) -> list[int]:
    """The polynomial of least degree with these values, by Newton's divided differences."""
    inverses = {gap: pow(gap, -1, P) for gap in {a - b for a in points for b in points} - {0}}
    differences = list(values)
    for order in range(1, len(points)):
        for i in range(len(points) - 1, order - 1, -1):
            gap = points[i] - points[i - order]
            differences[i] = (differences[i] - differences[i - 1]) * inverses[gap] % P
    found: list[int] = []
    for point, difference in zip(reversed(points), reversed(differences), strict=True):
        found = _minus(_times(found, [-point, 1]), [-difference])
    return found


def _times(left: list[int], right: list[int]) -> list[int]:
    product = [0] * (len(left) + len(right) - 1) if left and right else []
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    return _trimmed([coefficient % P for coefficient in product])


def _minus(left: list[int], right: list[int]) -> list[int]:
    length = max(len(left), len(right))
    padded = zip(left + [0] * (length - len(left)), right + [0] * (length - len(right)), strict=True)
    return _trimmed([(a - b) % P for a, b in padded])


def _divided(dividend: list[int], divisor: list[int]) -> tuple[list[int], list[int]]:
    """Quotient and remainder."""
    rest = list(dividend)
    inverse = pow(divisor[-1], -1, P)
    quotient = [0] * max(0, len(dividend) - len(divisor) + 1)
    for shift in range(len(quotient) - 1, -1, -1):
        factor = quotient[shift] = rest[shift + len(divisor) - 1] * inverse % P
        for i, coefficient in enumerate(divisor):
            rest[shift + i] = (rest[shift + i] - factor * coefficient) % P
    return _trimmed(quotient), _trimmed(rest)


def _trimmed(polynomial: list[int]) -> list[int]:
    while polynomial and polynomial[-1] == 0:
        polynomial.pop()
    return polynomial


def _value(polynomial: list[int], point: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % P
    return value
