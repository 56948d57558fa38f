"""Which shares lie on one polynomial, when some are wrong: Reed-Solomon decoding after Gao (2003).

A polynomial is a list of its coefficients, the constant first, without zeros at the end; [] is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..secrets import Secret
from .shamir import PRIME

Polynomial = list[int]


def agreeing(shares: Mapping[int, Secret], threshold: int) -> tuple[int, ...]:
    """The x of the shares on the one polynomial of degree below t that all but ⌊(m - t)/2⌋ of m shares lie on.

    Empty where there is no such polynomial, so that more shares are wrong than can be told apart.
    """
    values = {x: int.from_bytes(share.reveal_bytes(), "big") for x, share in shares.items()}
    product: Polynomial = [1]
    for x in values:
        product = _times(product, [-x % PRIME, 1])
    before, now = product, _through(values, product)
    factor_before: Polynomial = []
    factor: Polynomial = [1]
    while 2 * (len(now) - 1) >= len(values) + threshold:
        quotient, rest = _divided(before, now)
        before, now = now, rest
        factor_before, factor = factor, _minus(factor_before, _times(quotient, factor))
    found, rest = _divided(now, factor)
    if rest or len(found) > threshold:
        return ()
    return tuple(x for x, value in values.items() if _at(found, x) == value)


def _through(values: Mapping[int, int], product: Polynomial) -> Polynomial:
    """Lagrange's polynomial through the values, given ∏ (X - x)."""
    total = [0] * len(values)
    for x, value in values.items():
        basis, _ = _divided(product, [-x % PRIME, 1])
        scale = value * pow(_at(basis, x), -1, PRIME) % PRIME
        total = [(one + scale * other) % PRIME for one, other in zip(total, basis, strict=True)]
    return _trimmed(total)


def _divided(above: Polynomial, below: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and rest."""
    rest, inverse = list(above), pow(below[-1], -1, PRIME)
    quotient = [0] * max(0, len(above) - len(below) + 1)
    for place in reversed(range(len(quotient))):
        leading = rest[place + len(below) - 1] * inverse % PRIME
        quotient[place] = leading
        for offset, coefficient in enumerate(below):
            rest[place + offset] = (rest[place + offset] - leading * coefficient) % PRIME
    return quotient, _trimmed(rest)


def _times(one: Polynomial, other: Polynomial) -> Polynomial:
    result = [0] * max(0, len(one) + len(other) - 1)
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            result[i + j] = (result[i + j] + a * b) % PRIME
    return _trimmed(result)


def _minus(one: Polynomial, other: Polynomial) -> Polynomial:
    size = max(len(one), len(other))
    pairs = zip(one + [0] * (size - len(one)), other + [0] * (size - len(other)), strict=True)
    return _trimmed([(a - b) % PRIME for a, b in pairs])


def _trimmed(coefficients: Sequence[int]) -> Polynomial:
    size = len(coefficients)
    while size and coefficients[size - 1] == 0:
        size -= 1
    return list(coefficients[:size])


def _at(polynomial: Polynomial, x: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * x + coefficient) % PRIME
    return value
