"""Memory that is no longer used, back to the system.

Chunks and blocks of a megabyte come from many threads. glibc gives each thread a heap that hardly
ever shrinks and soon serves even large blocks from it: after a hundred rounds the server would be
nearly twice its size, with next to nothing in use. Another C library has its own ways.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8


def share_one_heap() -> None:
    """For the whole process, before it has threads: one heap for all of them."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Return what lies free in every heap."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
