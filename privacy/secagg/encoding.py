"""Canonical bytes: fixed fields, big-endian, and one way only to write a value."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from .codes import AbortCode, abort

SITE_ID_BYTES = 16
DIGEST_BYTES = 32
MAX_TEXT_BYTES = 255


def number(value: int, size: int) -> bytes:
    """An unsigned integer of ``size`` bytes."""
    return value.to_bytes(size, "big")


def real(value: float) -> bytes:
    """An IEEE double."""
    return struct.pack(">d", value)


def text(value: str) -> bytes:
    """UTF-8 after its length in one byte."""
    data = value.encode()
    return number(len(data), 1) + data


def listed(items: Iterable[bytes]) -> bytes:
    """Items of one size, or items that tell their own, after their count in four bytes."""
    parts = list(items)
    return number(len(parts), 4) + b"".join(parts)


class Reader:
    """Reads what the functions above wrote, strictly.

    Every method raises SecureSumFailed("bad-message") where the bytes end too early; ``end`` where they do not end.
    """

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise abort(AbortCode.BAD_MESSAGE, f"{self._what} ends after {len(self._data)} bytes, expected more")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, size: int) -> int:
        """An unsigned integer of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def real(self) -> float:
        """An IEEE double."""
        value: float = struct.unpack(">d", self.take(8))[0]
        return value

    def text(self) -> str:
        """UTF-8 after its length."""
        data = self.take(self.number(1))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise abort(AbortCode.BAD_MESSAGE, f"{self._what} holds text that is not UTF-8") from None

    def count(self, item_bytes: int) -> int:
        """How many items of at least ``item_bytes`` follow; never more than the rest can hold."""
        count = self.number(4)
        if count * item_bytes > len(self._data) - self._at:
            raise abort(AbortCode.BAD_MESSAGE, f"{self._what} announces {count} items and is too short for them")
        return count

    def end(self) -> None:
        """Nothing must follow."""
        if self._at != len(self._data):
            raise abort(AbortCode.BAD_MESSAGE, f"{self._what} has {len(self._data) - self._at} bytes too many")
