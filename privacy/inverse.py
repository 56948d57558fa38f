"""Inverse tables of integer noise: from uniform 64-bit words to Skellam or discrete Gaussian values.

The probabilities are worked out in 60-digit decimals and kept as 128-bit thresholds. A word decides by itself unless
it is equal to the upper half of a threshold; then 64 further bits decide. So every P(X <= k) is right within 2^-127,
at the price of one word a value. (With 64 bits alone, a million values of 10^5 kinds each could be off by a total
variation of 10^-9, once for each site and release: not far enough below a usual δ.)

Shape suffixes: B values drawn at once, T thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError

MIN_DEVIATION, MAX_DEVIATION = 0.125, 2.0**16
_DIGITS = 60
_TAIL_BITS = 160  # what lies beyond the first weight has less than 2^-160 of all
_UNIT_BITS = 128

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class InverseTable:
    """Thresholds t_i: the value is -T/2 plus the number of thresholds not above a uniform 128-bit number.

    Attributes:
        high_T, low_T: uint64, the halves of the thresholds, ascending. The table is symmetric: t_i + t_(T-1-i) = 2^128.
    """

    high_T: Words
    low_T: Words

    @property
    def largest(self) -> int:
        """The largest magnitude of a value."""
        return len(self.high_T) // 2

    def values(self, words_B: Words, tie_words: Callable[[int], Words]) -> npt.NDArray[np.int64]:
        """One value for each uniform word, int64.

        Args:
            words_B: the upper halves of the uniform numbers.
            tie_words: gives so many uniform words: the lower halves of those that the upper do not decide, in order.
        """
        index_B = np.searchsorted(self.high_T, words_B, side="right")
        tied = np.flatnonzero(self.high_T[index_B - 1] == words_B)
        for position, low in zip(tied, tie_words(len(tied)), strict=True):
            first = np.searchsorted(self.high_T, words_B[position], side="left")
            equal = self.low_T[first : index_B[position]]
            index_B[position] = first + np.searchsorted(equal, low, side="right")
        return np.asarray(index_B - self.largest, np.int64)


@lru_cache(maxsize=4)
def skellam_table(variance: Fraction) -> InverseTable:
    """The difference of two Poisson values with mean ``variance``/2 each: P(k) = e^-v I_|k|(v).

    Raises:
        ConfigError: the standard deviation is below 1/8 or above 2^16.
    """
    return _table(_skellam_weights, variance)


@lru_cache(maxsize=4)
def discrete_gaussian_table(variance: Fraction) -> InverseTable:
    """P(k) in proportion to exp(-k² / 2v) (Canonne et al. 2020); ``variance`` is v, errors as in ``skellam_table``."""
    return _table(_gaussian_weights, variance)


def _table(weights: Callable[[Decimal, int], Iterator[Decimal]], variance: Fraction) -> InverseTable:
    if not MIN_DEVIATION**2 <= variance <= MAX_DEVIATION**2:
        raise ConfigError(
            f"the noise of one site has the variance {float(variance):.6g}, expected a standard deviation of "
            f"{MIN_DEVIATION} to {MAX_DEVIATION:.0f} steps",
            hint="change the scale: steps much finer than the noise gain nothing, much coarser ones hide it",
        )
    with localcontext(prec=_DIGITS):
        tail, tails = Decimal(0), []  # Σ of the weights from k on, for k from the farthest to 0
        for weight in weights(Decimal(variance.numerator) / variance.denominator, _farthest(float(variance))):
            tail += weight
            tails.append(tail)
        to_units = 2**_UNIT_BITS / (tails[-1] + tails[-2])
        below = [units for tail in tails[:-1] if (units := int(tail * to_units)) > 0]  # P(X <= -k)
    thresholds = below + [2**_UNIT_BITS - units for units in reversed(below)]
    halves = np.frombuffer(b"".join(units.to_bytes(16, "little") for units in thresholds), "<u8").reshape(-1, 2)
    return InverseTable(np.ascontiguousarray(halves[:, 1]), np.ascontiguousarray(halves[:, 0]))


def _farthest(variance: float) -> int:
    """A k with P(X >= k) < 2^-160, by Chernoff's bound for Skellam, whose tail is the heavier one."""

    def exponent(k: int) -> float:
        return k * math.asinh(k / variance) - k * k / (math.hypot(k, variance) + variance)

    k = math.ceil(math.sqrt(2 * _TAIL_BITS * math.log(2) * variance)) + 1
    while exponent(k) < _TAIL_BITS * math.log(2):
        k += 1 + k // 64
    return k


def _skellam_weights(variance: Decimal, farthest: int) -> Iterator[Decimal]:
    """In proportion to I_k(v), from the farthest k to 0: I_(k-1) = I_(k+1) + 2k/v I_k (Miller's recurrence).

    All terms are positive, so rounding does not grow. That the first term is not the true one adds to each P(k)
    at most about P(farthest).
    """
    before, weight = Decimal(0), Decimal(1)
    twice = 2 / variance
    for k in range(farthest, 0, -1):
        yield weight
        before, weight = weight, before + k * twice * weight
    yield weight


def _gaussian_weights(variance: Decimal, farthest: int) -> Iterator[Decimal]:
    """exp((f² - k²) / 2v), from the farthest k = f to 0: each is the one before times exp((2k - 1) / 2v)."""
    weight, ratio, step = Decimal(1), ((2 * farthest - 1) / (2 * variance)).exp(), (-1 / variance).exp()
    for _ in range(farthest):
        yield weight
        weight *= ratio
        ratio *= step
    yield weight
