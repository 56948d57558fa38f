"""How large the next chunk is: large on a fast line, small on a slow one, where each is a sign of life."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .channel import CHUNK_BYTES

FIRST_BYTES: Final = 64 << 10
QUICK_SECONDS: Final = 0.05
SLOW_SECONDS: Final = 0.5


@dataclass(slots=True)
class Pace:
    """Doubles after a chunk that was taken quickly, halves after one that was not; never above ``CHUNK_BYTES``.

    A deadline counts from the last chunk that arrived, so a chunk must not take anywhere near as
    long as the shortest sensible deadline, whatever the line.
    """

    monotonic: Callable[[], float] = time.monotonic
    _bytes: int = FIRST_BYTES
    _asked: float | None = field(default=None)

    def next_bytes(self) -> int:
        """The size of the next chunk; asked for when the one before has been taken."""
        now = self.monotonic()
        if self._asked is not None:
            took = now - self._asked
            if took < QUICK_SECONDS:
                self._bytes = min(CHUNK_BYTES, 2 * self._bytes)
            elif took > SLOW_SECONDS:
                self._bytes = max(FIRST_BYTES, self._bytes // 2)
        self._asked = now
        return self._bytes
