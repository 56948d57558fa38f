"""The n updates of a round as the rows of an n x D matrix that need not fit in memory.

Shape suffixes: N updates, D parameters, C the columns of one block.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import Corrupt, InvalidUpdate
from ..files import read_exactly, storing

FLOAT_BYTES = 4

# One float32 row of C values per update. Rows need not lie side by side.
Block: TypeAlias = Sequence[npt.NDArray[np.float32]]


@runtime_checkable
class Rows(Protocol):
    """A store of float32 rows, read in blocks of columns."""

    @property
    def num_rows(self) -> int:
        """N."""
        ...

    @property
    def num_columns(self) -> int:
        """D."""
        ...

    def read(self, start: int, stop: int, room_NC: npt.NDArray[np.float32] | None = None) -> Block:
        """Columns ``start`` to ``stop`` of every row, to be read and not changed.

        ``room_NC`` is room the store may use: N rows, at least ``stop - start`` columns. The block
        returned may lie in it or in the store itself, and holds until the same room is used again.

        Raises:
            StoreError: a row cannot be read; Corrupt if it is cut short.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ArrayRows:
    """Rows of an array in memory; other real dtypes become ``dtype`` block by block.

    ``dtype`` is float32, the one the compiled kernels know, or float64.

    Raises:
        InvalidUpdate: the array does not have two dimensions, or does not hold real numbers.
    """

    updates_ND: npt.NDArray[Any]
    dtype: type[np.floating[Any]] = np.float32

    def __post_init__(self) -> None:
        updates_ND = np.asarray(self.updates_ND)
        if updates_ND.ndim != 2:
            raise InvalidUpdate(f"the updates have shape {updates_ND.shape}, expected N updates x D parameters")
        if not np.can_cast(updates_ND.dtype, np.float64):
            raise InvalidUpdate(f"the updates are {updates_ND.dtype}, expected real numbers")
        object.__setattr__(self, "updates_ND", updates_ND)

    @property
    def num_rows(self) -> int:
        """N."""
        return int(self.updates_ND.shape[0])

    @property
    def num_columns(self) -> int:
        """D."""
        return int(self.updates_ND.shape[1])

    def read(self, start: int, stop: int, room_NC: npt.NDArray[np.float32] | None = None) -> Block:
        """A view of some columns, or their converted values in the room."""
        block_NC = self.updates_ND[:, start:stop]
        if block_NC.dtype == self.dtype:
            return list(block_NC)
        if room_NC is None or room_NC.dtype != self.dtype:
            room_NC = np.empty(block_NC.shape, self.dtype)
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as that
            np.copyto(room_NC[:, : stop - start], block_NC, casting="unsafe")
        return list(room_NC[:, : stop - start])


@dataclass(frozen=True, slots=True)
class Window:
    """One row in a file: little-endian float32 values from ``offset_bytes`` on."""

    path: Path
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows in files, copied out by positioned reads: for files that another process could cut short.

    A file is open only while it is read, so that a thousand rows need no thousand descriptors.
    """

    windows: tuple[Window, ...]
    num_columns: int

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.windows)

    def read(self, start: int, stop: int, room_NC: npt.NDArray[np.float32] | None = None) -> Block:
        """Some columns, read into the room or a new array."""
        if room_NC is None:
            room_NC = np.empty((self.num_rows, stop - start), np.float32)
        block_NC = room_NC[:, : stop - start]
        for window, row_C in zip(self.windows, block_NC, strict=True):
            read_exactly(window.path, window.offset_bytes + FLOAT_BYTES * start, row_C.data.cast("B"))
        return list(block_NC)


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Rows in files of our own, mapped into memory a block at a time: no copy is made.

    A block's pages are let go with the block. A file cut short *while it is mapped* ends the
    process, so that this is for files that nobody else writes; one that is too short when the
    block is read is refused like any other.

    Of few rows, whole huge pages are mapped around a block: where the system holds a file in such
    pages, one entry in the page table does for 2 MiB, and mapping costs a third.
    """

    windows: tuple[Window, ...]
    num_columns: int

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.windows)

    def read(
        self,
        start: int,
        stop: int,
        room_NC: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (needs no room)
    ) -> Block:
        """Some columns, as views of the files' pages."""
        whole_pages = self.num_rows * _HUGE_PAGE_BYTES <= _MAX_MAPPED_BYTES
        page_bytes = _HUGE_PAGE_BYTES if whole_pages else mmap.ALLOCATIONGRANULARITY
        return [_mapped(window, start, stop, page_bytes) for window in self.windows]


@dataclass(frozen=True, slots=True)
class StackedRows:
    """The rows of one store, then those of another, over the same columns."""

    first: Rows
    second: Rows

    @property
    def num_rows(self) -> int:
        """N."""
        return self.first.num_rows + self.second.num_rows

    @property
    def num_columns(self) -> int:
        """D."""
        return self.first.num_columns

    def read(self, start: int, stop: int, room_NC: npt.NDArray[np.float32] | None = None) -> Block:
        """Some columns of both."""
        split = self.first.num_rows
        above, below = (None, None) if room_NC is None else (room_NC[:split], room_NC[split:])
        return [*self.first.read(start, stop, above), *self.second.read(start, stop, below)]


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Some rows of a store, in the order given."""

    rows: Rows
    indices: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.indices)

    @property
    def num_columns(self) -> int:
        """D."""
        return self.rows.num_columns

    def read(
        self,
        start: int,
        stop: int,
        room_NC: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (the store would need room for all its rows)
    ) -> Block:
        """Some columns of the chosen rows."""
        block = self.rows.read(start, stop)
        return [block[index] for index in self.indices]


@dataclass(frozen=True, slots=True, eq=False)
class ScaledRows:
    """The rows of a store, each times its factor, rounded to float32."""

    rows: Rows
    factors_N: npt.NDArray[np.float64]

    @property
    def num_rows(self) -> int:
        """N."""
        return self.rows.num_rows

    @property
    def num_columns(self) -> int:
        """D."""
        return self.rows.num_columns

    def read(self, start: int, stop: int, room_NC: npt.NDArray[np.float32] | None = None) -> Block:
        """Some columns, scaled; a row with factor 1 is passed on as it is."""
        block = self.rows.read(start, stop, room_NC)
        return [
            row_C if factor == 1 else np.multiply(row_C, factor, dtype=np.float64).astype(np.float32)
            for row_C, factor in zip(block, self.factors_N.tolist(), strict=True)
        ]


def stacked(first: Rows, second: Rows) -> Rows:
    """The rows of two stores as one.

    Raises:
        InvalidUpdate: they have different numbers of columns.
    """
    if first.num_columns != second.num_columns:
        raise InvalidUpdate(f"rows of {second.num_columns} values cannot join rows of {first.num_columns}")
    return StackedRows(first, second)


def chosen(rows: Rows, indices: Sequence[int]) -> Rows:
    """Some rows of a store as a store of their own; files that hold none of them are not read."""
    wanted = tuple(indices)
    if wanted == tuple(range(rows.num_rows)):
        return rows
    if isinstance(rows, FileRows | MappedRows):
        return replace(rows, windows=tuple(rows.windows[index] for index in wanted))
    return ChosenRows(rows, wanted)


# What is mapped counts as the process's memory, so that it is kept small.
_HUGE_PAGE_BYTES = 2 << 20
_MAX_MAPPED_BYTES = 64 << 20


def _mapped(window: Window, start: int, stop: int, page_bytes: int) -> npt.NDArray[np.float32]:
    """Some columns of a row, with the pages around them mapped as far as the file goes."""
    if start == stop:
        return np.empty(0, np.float32)
    first, last = (window.offset_bytes + FLOAT_BYTES * column for column in (start, stop))
    begin, end = first // page_bytes * page_bytes, -(-last // page_bytes) * page_bytes
    with storing(f"reading {window.path.name}"):
        descriptor = os.open(window.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if size < last:
                raise Corrupt(f"{window.path} ends after {size} bytes, expected at least {last}")
            pages = mmap.mmap(descriptor, min(end, size) - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin)
        finally:
            os.close(descriptor)
    return np.frombuffer(pages, "<f4", stop - start, first - begin)
