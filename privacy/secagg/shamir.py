"""Shamir's sharing of a 32-byte secret (Shamir 1979), over the least prime above 2^256."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from ..secrets import Secret

PRIME = 2**256 + 297
SHARE_BYTES = 33


def share(secret: Secret, threshold: int, num_holders: int) -> tuple[Secret, ...]:
    """One share for each holder x = 1 … m: the value at x of a random polynomial of degree t - 1, the secret at 0.

    Any t shares give the secret; t - 1 say nothing about it.
    """
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(secret.reveal_bytes(), "big"))
    return tuple(Secret(_at(coefficients, x).to_bytes(SHARE_BYTES, "big")) for x in range(1, num_holders + 1))


def _at(coefficients: Sequence[int], x: int) -> int:
    value = 0
    for coefficient in coefficients:
        value = (value * x + coefficient) % PRIME
    return value


def is_share(given: Secret) -> bool:
    """Whether it is a number of the field; any other would be the same share in other bytes."""
    return int.from_bytes(given.reveal_bytes(), "big") < PRIME


def combine(shares: Mapping[int, Secret]) -> Secret | None:
    """The secret that these shares, by their x, agree on; None where it is no 32-byte value, so one share is wrong."""
    value = _value_at(0, shares)
    return Secret(value.to_bytes(32, "big")) if value < 2**256 else None


def outliers(good: Mapping[int, Secret], shares: Mapping[int, Secret]) -> frozenset[int]:
    """The x at which ``shares`` leave the polynomial through the ``good`` ones."""
    return frozenset(
        x
        for x, given in shares.items()
        if x not in good and _value_at(x, good) != int.from_bytes(given.reveal_bytes(), "big")
    )


def _value_at(x: int, shares: Mapping[int, Secret]) -> int:
    places = tuple(shares)
    values = (int.from_bytes(given.reveal_bytes(), "big") for given in shares.values())
    return sum(weight * value for weight, value in zip(_weights(x, places), values, strict=True)) % PRIME


@lru_cache(maxsize=1024)
def _weights(at: int, places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights of the values at ``places`` for the value at ``at``; one holder set serves many secrets."""
    before, after = [1], [1]
    for ahead, back in zip(places[:-1], reversed(places[1:]), strict=True):
        before.append(before[-1] * (at - ahead) % PRIME)
        after.append(after[-1] * (at - back) % PRIME)
    scales = _scales(places)
    return tuple(
        one * two % PRIME * scale % PRIME for one, two, scale in zip(before, reversed(after), scales, strict=True)
    )


@lru_cache(maxsize=256)
def _scales(places: tuple[int, ...]) -> tuple[int, ...]:
    """1 / ∏ (i - j) over the other places j, for each place i."""
    return tuple(pow(prod(i - j for j in places if j != i), -1, PRIME) for i in places)
