"""Updates dealt to holders, and what the holders answer, for tests that tamper with either."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from foedus.privacy.sharing.dealers import degree_answers, mask_answers
from foedus.privacy.sharing.field import Elements, Stream, from_integers
from foedus.privacy.sharing.packing import (
    Packing,
    deal,
    degree_masks,
    hidden,
    hidden_blocks,
    vanishing_masks,
    zero_sum_masks,
)
from foedus.privacy.sharing.products import pair_count, product_answers
from foedus.privacy.sharing.shortness import bits_of, projections, shortness_answers
from foedus.privacy.sharing.sums import sum_answers
from hypothesis import strategies as st


def stream(seed: str) -> Stream:
    """The same bytes for the same seed."""
    cipher = Cipher(algorithms.AES(hashlib.sha256(seed.encode()).digest()), modes.CTR(bytes(16))).encryptor()
    return lambda count: cipher.update(bytes(count))


@st.composite
def packings(draw: st.DrawFn) -> Packing:
    """Packings for up to some twenty holders, at their least number of holders or a little above."""
    blocks, colluders = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    dropouts, liars = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    needed = 2 * (colluders + blocks - 1) + 1 + dropouts + 2 * liars
    return Packing(needed + draw(st.integers(0, 2)), blocks, colluders, dropouts, liars)


@dataclass(slots=True)
class Dealt:
    """Everything dealt in a round, by dealer and holder: N dealers, as many holders, T + 1 + D dealers of masks."""

    packing: Packing
    blocks: list[Elements]
    shares_NHL: Elements
    degree_NH: Elements
    vanishing_NH: Elements
    masks_ZHA: Elements
    hiding_ZH: Elements
    bits_NHB: Elements
    width: int = 0
    challenge: str = "challenge"
    lies: dict[int, int] = field(default_factory=dict)  # by holder: added to every answer

    @property
    def dealers(self) -> int:
        return len(self.shares_NHL)

    def prove_short(self, width: int) -> None:
        """Deal the bits of every dealer's projections."""
        self.width = width
        for dealer, blocks in enumerate(self.blocks):
            own = projections(blocks[: self.packing.blocks], stream(self.challenge))
            self.share_bits(dealer, bits_of(own, width))

    def share_bits(self, dealer: int, bits_KB: Elements) -> None:
        if not self.bits_NHB.size:
            self.bits_NHB = np.zeros((self.dealers, self.packing.holders, bits_KB.shape[1]), np.uint64)
        self.bits_NHB[dealer] = deal(self.packing, hidden(self.packing, bits_KB, os.urandom))

    def products(self, holders: Iterable[int]) -> Elements:
        return self._answers(
            [product_answers(self.shares_NHL[:, j], self.masks_ZHA[:, j]) for j in holders], list(holders)
        )

    def degrees(self, holders: Iterable[int]) -> Elements:
        columns = (self.shares_NHL, self.bits_NHB, self.degree_NH)
        return self._answers(
            [degree_answers(*(dealt[:, j] for dealt in columns), stream("rho")) for j in holders], list(holders)
        )

    def masks(self, holders: Iterable[int]) -> Elements:
        return self._answers(
            [mask_answers(self.masks_ZHA[:, j], self.hiding_ZH[:, j], stream("rho")) for j in holders], list(holders)
        )

    def shortness(self, holders: Iterable[int]) -> Elements:
        answers = []
        for j in holders:
            projected = projections(self.shares_NHL[:, j], stream(self.challenge))
            answers.append(
                shortness_answers(projected, self.bits_NHB[:, j], self.vanishing_NH[:, j], self.width, stream("rho"))
            )
        return self._answers(answers, list(holders))

    def sums(self, holders: Iterable[int], weights: Sequence[int]) -> Elements:
        return self._answers([sum_answers(self.shares_NHL[:, j], np.array(weights)) for j in holders], list(holders))

    def _answers(self, honest: list[Elements], holders: list[int]) -> Elements:
        lies = np.array([self.lies.get(holder, 0) for holder in holders], np.uint64)
        return (np.array(honest) + lies[:, None]) % np.uint64(2**61 - 1)


def dealt(packing: Packing, updates: np.ndarray | list[Elements]) -> Dealt:
    """Every holder deals one update, of int64 or of field elements; the first T + 1 + D deal the masks."""
    vectors = [update if update.dtype == np.uint64 else from_integers(update) for update in updates]
    n, pairs = len(vectors), pair_count(len(vectors))
    blocks = [hidden_blocks(packing, vector, os.urandom) for vector in vectors]
    makers = range(packing.colluders + 1 + packing.dropouts)
    return Dealt(
        packing,
        blocks,
        np.array([deal(packing, rows) for rows in blocks]),
        degree_masks(packing, n, os.urandom).T.copy(),
        vanishing_masks(packing, n, os.urandom).T.copy(),
        np.array([zero_sum_masks(packing, pairs, os.urandom) for _ in makers]),
        zero_sum_masks(packing, len(makers), os.urandom).T.copy(),
        np.zeros((n, packing.holders, 0), np.uint64),
    )
