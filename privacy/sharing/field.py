"""Vectors over the field of p = 2^61 - 1 elements, multiplied through float64 matrix products.

An element is a uint64 below p. For a product, each is split into three limbs of 21 bits; 2,048 products of two limbs
add up to less than 2^53, so that BLAS adds them without rounding. Since 2^61 = 1 (mod p), a limb's weight is a
rotation of the 61 bits.

Shape suffixes: R rows, M what is summed over, C columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import InvalidUpdate, ProtocolError

BITS: Final = 61
P: Final = (1 << BITS) - 1
ELEMENT_BYTES: Final = 8

Elements: TypeAlias = npt.NDArray[np.uint64]
Integers: TypeAlias = npt.NDArray[np.int64]

# The next bytes of a uniform stream: ``os.urandom``, or the keystream of a cipher under a seed.
Stream: TypeAlias = Callable[[int], bytes]

_P: Final = np.uint64(P)
_LIMB_BITS: Final = 21
_LIMB: Final = np.uint64((1 << _LIMB_BITS) - 1)
_EXACT: Final = 2048  # products of two limbs: 2048 * 2^42 = 2^53
_SPAN: Final = 64 * _EXACT  # as far as three sums of such products stay below 2^61 together
_CHUNK: Final = 1 << 16  # elements of a product computed at once, so that they stay in the cache


def uniform(stream: Stream, *shape: int) -> Elements:
    """Uniform elements: the low 61 bits of little-endian 64-bit words; the word p is drawn again."""
    words = _words(stream, int(np.prod(shape)))
    while (again := np.flatnonzero(words == _P)).size:
        words[again] = _words(stream, again.size)
    return words.reshape(shape)


def _words(stream: Stream, count: int) -> Elements:
    return np.frombuffer(stream(ELEMENT_BYTES * count), "<u8").astype(np.uint64) & _P


def from_integers(integers: npt.NDArray[np.signedinteger]) -> Elements:
    """The elements that stand for integers of either sign.

    Raises:
        InvalidUpdate: an integer lies beyond ±(p - 1)/2, where it would come back as another.
    """
    wide = integers.astype(np.int64, copy=False)
    if wide.size and (wide.max() > P >> 1 or wide.min() < -(P >> 1)):
        raise InvalidUpdate("an integer is too large to be shared; expected less than 2^60 in size")
    return np.asarray((wide + np.where(wide < 0, np.int64(P), np.int64(0))).view(np.uint64))


def to_integers(elements: Elements) -> Integers:
    """The integer of least size that each element stands for."""
    signed = elements.view(np.int64)
    return np.asarray(signed - np.where(signed > P >> 1, np.int64(P), np.int64(0)))


def to_bytes(elements: Elements) -> bytes:
    """Eight bytes per element, little-endian."""
    return elements.astype("<u8", copy=False).tobytes()


def from_bytes(data: bytes, count: int) -> Elements:
    """What ``to_bytes`` wrote, as a vector.

    Raises:
        ProtocolError: there are not ``count`` elements, or one is not below p.
    """
    if len(data) != ELEMENT_BYTES * count:
        raise ProtocolError(f"{len(data)} bytes arrived, expected {count} field elements of {ELEMENT_BYTES} bytes")
    elements = np.frombuffer(data, "<u8").astype(np.uint64)
    if (elements >= _P).any():
        raise ProtocolError("a field element is not below 2^61 - 1")
    return elements


def add(left: Elements, right: Elements | np.uint64) -> Elements:
    """left + right."""
    return _once_less(left + right)


def negate(elements: Elements) -> Elements:
    """0 - elements."""
    return np.where(elements == 0, elements, _P - elements)


def total(elements: Elements) -> Elements:
    """The sum over the first axis, of any length."""
    low, high = elements & np.uint64(0xFFFF_FFFF), elements >> np.uint64(32)
    return add(_fold(low.sum(axis=0)), _rotated(_fold(high.sum(axis=0)), 32))


def multiply(left: Elements, right: Elements) -> Elements:
    """left * right, element by element."""
    half = np.uint64(31)
    low = np.uint64((1 << 31) - 1)
    left_high, left_low, right_high, right_low = left >> half, left & low, right >> half, right & low
    middle = left_low * right_high + left_high * right_low
    return _fold(
        ((left_high * right_high) << np.uint64(1))
        + (middle >> np.uint64(30))
        + ((middle & np.uint64((1 << 30) - 1)) << half)
        + left_low * right_low
    )


def matrix_product(left_RM: Elements, right_MC: Elements) -> Elements:
    """The R x C matrix left · right, fast where M is small and C large."""
    rows, inner = left_RM.shape
    columns = right_MC.shape[1]
    out_RC = np.zeros((rows, columns), np.uint64)
    width = max(256, _CHUNK // max(1, rows))
    for first in range(0, columns, width):
        part = slice(first, first + width)
        for start in range(0, inner, _SPAN):
            span = slice(start, start + _SPAN)
            out_RC[:, part] = add(out_RC[:, part], _product(left_RM[:, span], right_MC[span, part]))
    return out_RC


def inner_products(left_RM: Elements, right_CM: Elements) -> Elements:
    """The R x C matrix left · rightᵀ of few long rows; ``right_CM`` may be ``left_RM`` itself, for its Gram matrix."""
    rows, columns = len(left_RM), len(right_CM)
    out_RC = np.zeros((rows, columns), np.uint64)
    for start in range(0, left_RM.shape[1], _SPAN):
        sums = np.zeros((3 * rows, 3 * columns), np.uint64)
        for first in range(start, min(start + _SPAN, left_RM.shape[1]), _EXACT // 2):
            part = slice(first, first + _EXACT // 2)
            left = _limbs(left_RM[:, part]).reshape(3 * rows, -1)
            right = left if right_CM is left_RM else _limbs(right_CM[:, part]).reshape(3 * columns, -1)
            sums += (left @ right.T).astype(np.uint64)
        # By limbs of left and right; those of one weight lie on a diagonal.
        (a, b, c), (d, e, f), (g, h, i) = (np.hsplit(row, 3) for row in np.vsplit(sums, 3))
        out_RC = add(out_RC, _joined((a, b + d, c + e + g, f + h, i)))
    return out_RC


def ternary_product(rows_RM: Elements, signs: Iterable[npt.NDArray[np.float64]]) -> Elements:
    """The R x C matrix rows · signsᵀ, for signs -1, 0 and 1 that come as blocks of some of their M columns."""
    sums: npt.NDArray[np.float64] = np.zeros(1)  # of limbs: exact for any M below 2^32
    start = 0
    for block_CM in signs:
        stop = start + block_CM.shape[1]
        sums = sums + _limbs(rows_RM[:, start:stop]).reshape(3 * len(rows_RM), -1) @ block_CM.T
        start = stop
    low, middle, high = (from_integers(limb.astype(np.int64)) for limb in np.vsplit(sums, 3))
    return _joined((low, middle, high))


def interpolation(points: list[int], at: list[int]) -> Elements:
    """The matrix that takes a polynomial's values at distinct ``points`` to those it has ``at`` others.

    Right for polynomials of degree below the number of points (Lagrange).
    """
    others = [points[:i] + points[i + 1 :] for i in range(len(points))]
    below = [_product_of(point - other for other in rest) for point, rest in zip(points, others, strict=True)]
    scale = [pow(product, -1, P) for product in below]
    rows = [
        [_product_of(place - other for other in rest) * factor % P for rest, factor in zip(others, scale, strict=True)]
        for place in at
    ]
    return np.array(rows, np.uint64)


def _product_of(integers: Iterable[int]) -> int:
    product = 1
    for integer in integers:
        product = product * integer % P
    return product


def _product(left_RM: Elements, right_MC: Elements) -> Elements:
    """left · right for M up to the span."""
    sums = np.zeros((5, len(left_RM), right_MC.shape[1]), np.uint64)
    for start in range(0, left_RM.shape[1], _EXACT // 4):  # up to three limbs of each element meet in one sum
        inner = slice(start, start + _EXACT // 4)
        left = np.hstack([*_limbs(left_RM[:, inner])[::-1]])
        right = _limbs(right_MC[inner]).reshape(-1, right_MC.shape[1])
        m = len(right) // 3
        # Limbs a and b weigh 2^(21(a + b)): one product for each of the five weights.
        sums[0] += (left[:, 2 * m :] @ right[:m]).astype(np.uint64)
        sums[1] += (left[:, m:] @ right[: 2 * m]).astype(np.uint64)
        sums[2] += (left @ right).astype(np.uint64)
        sums[3] += (left[:, : 2 * m] @ right[m:]).astype(np.uint64)
        sums[4] += (left[:, :m] @ right[2 * m :]).astype(np.uint64)
    return _joined(tuple(sums))


def _limbs(elements: Elements) -> npt.NDArray[np.float64]:
    """The three limbs of every element, the lowest first."""
    limbs = np.empty((3, *elements.shape))
    limbs[0] = elements & _LIMB
    limbs[1] = (elements >> np.uint64(_LIMB_BITS)) & _LIMB
    limbs[2] = elements >> np.uint64(2 * _LIMB_BITS)
    return limbs


def _joined(sums: tuple[Elements, ...]) -> Elements:
    """The element of up to seven sums, each below 2^61, of weights 2^0, 2^21, 2^42, ..."""
    joined = sums[0]
    for weight in range(1, len(sums)):
        joined = joined + _rotated(sums[weight], weight * _LIMB_BITS)
    return _fold(joined)


def _rotated(elements: Elements, by: int) -> Elements:
    """elements * 2^by, for elements below 2^61."""
    left = np.uint64(by % BITS)
    return ((elements << left) & _P) | (elements >> (np.uint64(BITS) - left))


def _fold(words: Elements) -> Elements:
    """Any 64-bit words, modulo p."""
    return _once_less((words & _P) + (words >> np.uint64(BITS)))


def _once_less(words: Elements) -> Elements:
    """Words below 2p, modulo p: of the two candidates the other one wraps around and is larger."""
    return np.asarray(np.minimum(words, words - _P))
