"""Packed Shamir shares: several blocks of a vector in one polynomial, a point of it to each holder.

At 1, ... K lie the blocks of the data, at K + 1, ... K + T uniform ones; holder j has the value at K + T + 1 + j. Any
T holders see uniform elements (Franklin and Yung 1992).

Shape suffixes: N holders, H those of them who answered, K blocks, L columns of a block, A polynomials side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ConfigError, QuorumNotMet
from .field import Elements, Stream, interpolation, matrix_product, negate, total, uniform


@dataclass(frozen=True, slots=True)
class Packing:
    """Who may fail, and what that leaves room for.

    Condition: N >= 2(T + K - 1) + 1 + D + 2E, so that products of shares can still be decoded.

    Attributes:
        holders: N, the sites among which each vector is shared.
        blocks: K, into which a vector is cut; its shares have 1/K of its length.
        colluders: T, so many holders together learn nothing from their shares.
        dropouts: D, so many may not answer.
        liars: E, so many may answer wrongly; they are named.

    Raises:
        ConfigError: a number is out of range, or the condition does not hold.
    """

    holders: int
    blocks: int
    colluders: int
    dropouts: int = 0
    liars: int = 0

    def __post_init__(self) -> None:
        for name, least in (("holders", 1), ("blocks", 1), ("colluders", 1), ("dropouts", 0), ("liars", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least {least}")
        if self.holders < self.answers_needed + self.dropouts:
            raise ConfigError(
                f"{self.holders} holders are too few for {self.blocks} blocks, {self.colluders} colluders, "
                f"{self.dropouts} drop-outs and {self.liars} liars",
                hint=f"n >= 2(T + K - 1) + 1 + D + 2E asks for {self.answers_needed + self.dropouts}",
            )

    @property
    def degree(self) -> int:
        """T + K - 1, the degree of a share."""
        return self.colluders + self.blocks - 1

    @property
    def product_degree(self) -> int:
        """2(T + K - 1), the degree of a product of two shares."""
        return 2 * self.degree

    @property
    def answers_needed(self) -> int:
        """How many holders must answer for E liars among them to be found."""
        return self.product_degree + 1 + 2 * self.liars

    @property
    def data_points(self) -> list[int]:
        """Where the blocks of the data lie."""
        return list(range(1, self.blocks + 1))

    def require_answers(self, count: int) -> None:
        """Refuse to go on with so few answers.

        Raises:
            QuorumNotMet: fewer than 2(T + K - 1) + 1 + 2E holders answered.
        """
        if count < self.answers_needed:
            raise QuorumNotMet(f"{count} of {self.holders} holders answered, expected at least {self.answers_needed}")

    def holder_points(self, holders: Sequence[int] | None = None) -> list[int]:
        """Where the shares of these holders (by index; all, if None) lie."""
        first = self.blocks + self.colluders + 1
        return [first + holder for holder in (range(self.holders) if holders is None else holders)]

    def columns(self, length: int) -> int:
        """L, the length of a block of a vector of this length."""
        return -(-length // self.blocks)


def hidden_blocks(packing: Packing, vector: Elements, stream: Stream) -> Elements:
    """The vector, padded with zeros, as K rows, and T uniform rows below them: (K + T) x L.

    ``deal`` makes the shares of them; the dealer needs the first K again for its bits.
    """
    blocks = np.zeros((packing.blocks, packing.columns(vector.size)), np.uint64)
    blocks.reshape(-1)[: vector.size] = vector
    return hidden(packing, blocks, stream)


def hidden(packing: Packing, blocks_KL: Elements, stream: Stream) -> Elements:
    """K blocks and T uniform rows below them: (K + T) x L."""
    return np.vstack([blocks_KL, uniform(stream, packing.colluders, blocks_KL.shape[1])])


def deal(packing: Packing, rows: Elements) -> Elements:
    """The shares, N x L, of what ``hidden_blocks`` or ``hidden`` made."""
    return _evaluated(packing, rows)


def degree_masks(packing: Packing, count: int, stream: Stream) -> Elements:
    """Shares, N x count, of uniform polynomials of a share's degree: what hides a degree test."""
    return _evaluated(packing, uniform(stream, packing.degree + 1, count))


def vanishing_masks(packing: Packing, count: int, stream: Stream) -> Elements:
    """Shares, N x count, of polynomials of a product's degree that are 0 at every data point and uniform otherwise."""
    values = uniform(stream, packing.product_degree + 1, count)
    values[: packing.blocks] = 0
    return _evaluated(packing, values)


def zero_sum_masks(packing: Packing, count: int, stream: Stream) -> Elements:
    """Shares, N x count, of polynomials of a product's degree whose values at the data points add up to 0.

    Added to products of shares they leave the sum over the blocks and hide the summands.
    """
    values = uniform(stream, packing.product_degree + 1, count)
    values[0] = negate(total(values[1 : packing.blocks]))
    return _evaluated(packing, values)


def at_data_points(packing: Packing, holders: Sequence[int], shares_HA: Elements, degree: int) -> Elements:
    """The values, K x A, at the data points of the polynomials that the shares of these holders lie on.

    The first degree + 1 holders decide; whether the others agree is ``wrong_rows``'s to say.

    Raises:
        QuorumNotMet: there are fewer.
    """
    if len(holders) <= degree:
        raise QuorumNotMet(f"{len(holders)} holders answered alike, expected at least {degree + 1}")
    points = packing.holder_points(holders[: degree + 1])
    return matrix_product(interpolation(points, packing.data_points), shares_HA[: degree + 1])


def _evaluated(packing: Packing, values: Elements) -> Elements:
    """The shares of the polynomials that have these values at 1, 2, ..."""
    points = list(range(1, len(values) + 1))
    return matrix_product(interpolation(points, packing.holder_points()), values)
