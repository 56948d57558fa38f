"""Masks: keystreams of a cipher, added to and subtracted from words in place.

Shape suffixes: D words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from ..secrets import Secret

SEED_BYTES = 32
PIECE_BYTES = 256 << 10  # what is added at once, so that a piece of keystream never leaves the cache
MAX_OPEN_STREAMS = 256

Words = npt.NDArray[np.unsignedinteger[Any]]


class Suite(IntEnum):
    """Which cipher makes the keystream. Key: the 32-byte seed; nonce and counter start at 0."""

    AES_256_CTR = 1
    CHACHA20 = 2


class Ring(IntEnum):
    """Integers modulo 2^w, w = 16, 32 or 64 bits."""

    W16 = 16
    W32 = 32
    W64 = 64

    @property
    def word_bytes(self) -> int:
        """Bytes of one word."""
        return self.value // 8

    @property
    def unsigned(self) -> np.dtype[Any]:
        """The dtype of masked words, little-endian on every machine."""
        return np.dtype(f"<u{self.word_bytes}")

    @property
    def signed(self) -> np.dtype[Any]:
        """The dtype of the same words read as numbers around 0."""
        return np.dtype(f"<i{self.word_bytes}")

    @property
    def largest(self) -> int:
        """The largest magnitude that a sum may have: 2^(w-1) - 1."""
        return int(2 ** (self.value - 1)) - 1


class Keystream:
    """The keystream of one seed, in order. ``into`` writes the next bytes into a buffer."""

    __slots__ = ("_context",)

    def __init__(self, seed: Secret, suite: Suite = Suite.AES_256_CTR) -> None:
        key = seed.reveal_bytes()
        cipher: Cipher[Any]
        if suite is Suite.AES_256_CTR:
            cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16)))
        else:
            cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None)
        self._context: CipherContext = cipher.encryptor()

    def into(self, buffer: npt.NDArray[np.uint8], num_bytes: int) -> None:
        """Write ``num_bytes``, at most PIECE_BYTES, to the start of ``buffer``, which must be 15 bytes longer."""
        self._context.update_into(_ZEROS[:num_bytes], buffer.data)


def stream(seed: Secret) -> Callable[[int], bytes]:
    """The next bytes of a seed's AES-256-CTR keystream, as many as are asked for; whoever has the seed draws alike."""
    context = Cipher(algorithms.AES256(seed.reveal_bytes()), modes.CTR(bytes(16))).encryptor()
    return lambda num_bytes: context.update(bytes(num_bytes))


_ZEROS = memoryview(bytes(PIECE_BYTES))


def piece_buffer() -> npt.NDArray[np.uint8]:
    """A buffer that ``Keystream.into`` can fill with a piece."""
    return np.empty(PIECE_BYTES + 16, np.uint8)


def fold(
    words_D: Words, *, add: Sequence[Secret] = (), subtract: Sequence[Secret] = (), suite: Suite = Suite.AES_256_CTR
) -> None:
    """Add and subtract the masks of seeds, in place, modulo 2^w.

    Every mask starts at counter 0 and is read as little-endian words. Words are taken piece by piece, and of each
    piece all masks, so that memory is crossed once however many masks there are.

    Args:
        words_D: contiguous ``<u2``, ``<u4`` or ``<u8``.
    """
    buffer = piece_buffer()
    operations = [(seed, np.add) for seed in add] + [(seed, np.subtract) for seed in subtract]
    per_piece = PIECE_BYTES // words_D.itemsize
    for first in range(0, len(operations), MAX_OPEN_STREAMS):
        some = operations[first : first + MAX_OPEN_STREAMS]
        streams = [(Keystream(seed, suite), operation) for seed, operation in some]
        for start in range(0, len(words_D), per_piece):
            piece = words_D[start : start + per_piece]
            keystream = buffer[: piece.nbytes].view(words_D.dtype)
            for stream, operation in streams:
                stream.into(buffer, piece.nbytes)
                operation(piece, keystream, out=piece)
