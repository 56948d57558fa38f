"""Noise from inverse tables: the right distribution to 2^-64 and beyond, and nothing but the words decides."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from foedus.errors import ConfigError
from foedus.privacy.inverse import InverseTable, discrete_gaussian_table, skellam_table
from hypothesis import given, settings
from hypothesis import strategies as st

MAKERS = {"skellam": skellam_table, "discrete-gaussian": discrete_gaussian_table}
BITS = 400  # the oracles' fixed point


def thresholds(table: InverseTable) -> list[int]:
    return [(int(high) << 64) | int(low) for high, low in zip(table.high_T, table.low_T, strict=True)]


def below(table: InverseTable, k: int) -> Fraction:
    """P(X <= k) as the table has it."""
    return Fraction(thresholds(table)[k + table.largest], 2**128)


def exponential(x: Fraction) -> Fraction:
    """e^x for x >= 0 by its series, far beyond 2^-128."""
    total, term, n = Fraction(1), Fraction(1), 0
    while term > Fraction(1, 2**BITS) or n < x:
        n += 1
        term = Fraction(int(term * x / n * 2**BITS) + 1, 2**BITS)
        total += term
    return total


def skellam(variance: Fraction, k: int) -> Fraction:
    """e^-v Σ (v/2)^(2m+k) / (m! (m+k)!): the definition, two Poisson values subtracted."""
    k, half = abs(k), variance / 2
    term = half**k / math.factorial(k)
    total, m = term, 0
    while term > Fraction(1, 2**BITS) or m < 4 * variance:
        m += 1
        term = Fraction(int(term * half * half / (m * (m + k)) * 2**BITS), 2**BITS)
        total += term
    return total / exponential(variance)


def gaussian(variance: Fraction, k: int) -> Fraction:
    return 1 / exponential(Fraction(k * k) / (2 * variance))


def exact(name: str, variance: Fraction, reach: int) -> list[Fraction]:
    """P(X = k) for k from -reach to reach."""
    law = skellam if name == "skellam" else gaussian
    half = [law(variance, k) for k in range(reach + 1)]
    total = half[0] + 2 * sum(half[1:])
    scale = 1 if name == "skellam" else total
    return [half[abs(k)] / scale for k in range(-reach, reach + 1)]


@pytest.mark.parametrize("variance", [Fraction(1, 7), Fraction(1), Fraction(10), Fraction(400, 3)])
@pytest.mark.parametrize("name", MAKERS)
def test_every_probability_is_that_of_the_definition(name: str, variance: Fraction) -> None:
    table = MAKERS[name](variance)
    reach = table.largest + 3
    cumulated, wrong = Fraction(0), []
    for k, probability in zip(range(-reach, reach + 1), exact(name, variance, reach), strict=True):
        cumulated += probability
        found = below(table, k) if -table.largest <= k < table.largest else Fraction(k >= table.largest)
        wrong.append(abs(found - cumulated))
    assert max(wrong) <= Fraction(1, 2**127)
    assert max(wrong) > 0  # the oracle is not the table


@pytest.mark.parametrize("name", MAKERS)
def test_the_oracles_themselves_are_distributions(name: str) -> None:
    assert abs(sum(exact(name, Fraction(3), 60)) - 1) < Fraction(1, 2**200)


@pytest.mark.parametrize("deviation", [Fraction(1, 2), Fraction(12), Fraction(5000)])
@pytest.mark.parametrize("name", MAKERS)
def test_a_million_values_have_the_variance_asked_for(name: str, deviation: Fraction) -> None:
    """Within 0.5 %: the variance of a million is off by 0.14 % (0.26 % for the smallest), so a failure is 1 in 10^3
    at worst; hence the median of five."""
    table = MAKERS[name](deviation**2)
    found = [
        table.values(np.frombuffer(os.urandom(8_000_000), "<u8"), lambda count: np.zeros(count, "<u8")).astype(float)
        for _ in range(5)
    ]
    variance = float(np.median([values.var() for values in found]))
    expected = float(sum(p * k * k for k, p in enumerate(exact(name, deviation**2, 30), -30))) if deviation < 1 else 0
    assert variance == pytest.approx(expected or float(deviation**2), rel=5e-3)
    assert abs(np.mean(found)) < 5 * float(deviation) / math.sqrt(5e6)


@pytest.mark.parametrize("name", MAKERS)
def test_a_word_gives_the_value_whose_share_of_the_words_it_falls_in(name: str) -> None:
    table = MAKERS[name](Fraction(4))
    marks = thresholds(table)
    for place in (0, 1, table.largest, len(marks) - 1):
        for number, value in ((marks[place] - 1, place), (marks[place], place + 1)):
            high, low = divmod(number, 2**64)
            found = table.values(np.array([high], "<u8"), lambda count, low=low: np.array([low] * count, "<u8"))
            assert found.tolist() == [value - table.largest]


def test_the_ends_of_the_words_are_the_ends_of_the_table() -> None:
    table = skellam_table(Fraction(4))
    for word, value in ((0, -table.largest), (2**64 - 1, table.largest)):
        assert table.values(np.array([word], "<u8"), lambda count, w=word: np.full(count, w, "<u8")).tolist() == [value]


def test_further_words_are_taken_for_ties_alone_and_in_order() -> None:
    table, asked = discrete_gaussian_table(Fraction(9)), []
    middle = int(table.high_T[table.largest])

    def more(count: int) -> np.ndarray:
        asked.append(count)
        return np.array([0, 2**64 - 1][:count], "<u8")

    found = table.values(np.array([middle - 1, middle, middle, middle + 1], "<u8"), more)
    assert asked == [2]
    assert found.tolist() == [0, 0, 1, 1]


@settings(max_examples=40, deadline=None)
@given(numerator=st.integers(1, 10**6), denominator=st.integers(1, 10**3), name=st.sampled_from(sorted(MAKERS)))
def test_tables_are_symmetric_and_ascending(numerator: int, denominator: int, name: str) -> None:
    marks = thresholds(MAKERS[name](Fraction(1, 64) + Fraction(numerator, denominator * 100)))
    assert all(one <= other for one, other in pairwise(marks))
    assert all(one + other == 2**128 for one, other in zip(marks, reversed(marks), strict=True))
    assert marks[0] > 0


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(1, 65), Fraction(2**32 + 1)])
@pytest.mark.parametrize("name", MAKERS)
def test_noise_that_cannot_be_drawn_is_refused(name: str, variance: Fraction) -> None:
    with pytest.raises(ConfigError, match="standard deviation"):
        MAKERS[name](variance)


@pytest.mark.parametrize("name", MAKERS)
def test_the_least_noise_can_be_drawn(name: str) -> None:
    assert MAKERS[name](Fraction(1, 64)).largest >= 1


def test_the_largest_noise_can_be_drawn() -> None:
    table = discrete_gaussian_table(Fraction(2**32))
    assert 13 * 2**16 < table.largest < 14 * 2**16
