"""The two passes over the updates: one measures how far they lie apart, one combines them.

Neither holds more than a few blocks of columns, however long the rows; both give the same bits
whatever the block, the kernel, the number of threads and the pool that computes them.

Shape suffixes: N rows, D columns, C the columns of one block, P = N + 1 points, the last the origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import InvalidUpdate
from ..layout import first_not_finite
from .decision import Closest, Combination, Coordinatewise, Middle, WeightedSum
from .kernel import CHUNK_COLUMNS, Kernel
from .kernel_choice import best_kernel
from .network import Network, middle_network, sorting_network
from .rows import FLOAT_BYTES, ArrayRows, Rows, chosen
from .workers import Span, Threads, Workers

# Blocks this long keep the calls and mappings per block cheap; a multiple of the kernels' chunk,
# for the sums of distances are taken block by block.
MAX_BLOCK_COLUMNS = 1 << 17
MIN_BLOCK_COLUMNS = CHUNK_COLUMNS
BLOCK_BYTES = 16 << 20

T = TypeVar("T")
Row = npt.NDArray[np.float32]


class NotFinite(InvalidUpdate):
    """A pass met a value that is NaN or infinite; ``rows_not_finite`` finds whose."""


def block_columns(num_rows: int) -> int:
    """C: how many columns of ``num_rows`` updates are read at a time, within BLOCK_BYTES where it can be."""
    fitting = BLOCK_BYTES // (FLOAT_BYTES * max(num_rows, 1)) // CHUNK_COLUMNS * CHUNK_COLUMNS
    return min(MAX_BLOCK_COLUMNS, max(MIN_BLOCK_COLUMNS, fitting))


def squared_distances(
    rows: Rows, *, block: int | None = None, workers: Workers | None = None, kernel: Kernel | None = None
) -> npt.NDArray[np.float64]:
    """The squared distances between the rows and the origin, P x P float64: the first pass.

    From differences in float32, summed in float64 (see ``Kernel.squared_distances``): an error of
    about 1e-7 relative to *each* distance, whatever the length of the rows and whoever else is far
    away. Not ‖x‖² + ‖y‖² - 2⟨x, y⟩, which loses everything where updates nearly coincide. A row
    that is not finite has no finite distance to the origin, and leaves the other pairs alone.
    Memory: O(N² + N * block) for each worker.

    Args:
        rows: N rows.
        block: how many columns are read at a time, in whole chunks of CHUNK_COLUMNS.
        workers: who computes the blocks; None for threads of this process.
        kernel: the inner loops; None for the fastest there is.

    Raises:
        StoreError: a row cannot be read; Corrupt if it is cut short.
    """
    columns = max(CHUNK_COLUMNS, (block or block_columns(rows.num_rows)) // CHUNK_COLUMNS * CHUNK_COLUMNS)
    columns = min(columns, MAX_BLOCK_COLUMNS)
    measure = _Distances(rows, kernel or best_kernel(), columns, _rooms(rows, columns))
    # Summed by spans of one length, so that the block changes nothing.
    total_PP = np.zeros((rows.num_rows + 1, rows.num_rows + 1))
    for part_PP in (workers or Threads()).map(measure, _spans(rows.num_columns, MAX_BLOCK_COLUMNS)):
        total_PP += part_PP
    return total_PP


def combine(
    rows: Rows,
    combination: Combination,
    *,
    block: int | None = None,
    workers: Workers | None = None,
    kernel: Kernel | None = None,
) -> Iterator[tuple[int, Row]]:
    """The combined row as (first column, float32 values), block by block, in order: the second pass.

    A row of weight 0 is not read, so that what it holds leaves no trace. Memory: O(N * block) for
    each worker.

    Args:
        rows: N rows.
        combination: what to make of them.
        block: C, how many columns are read at a time.
        workers: who computes the blocks; None for threads of this process.
        kernel: the inner loops; None for the fastest there is.

    Raises:
        InvalidUpdate: the combination does not fit N rows.
        NotFinite: a row that a coordinate rule reads holds NaN or an infinity.
        StoreError: a row cannot be read; Corrupt if it is cut short.
    """
    return combine_then(_as_it_is, rows, combination, block=block, workers=workers, kernel=kernel)


def combine_then(
    then: Callable[[int, Row], T],
    rows: Rows,
    combination: Combination,
    *,
    block: int | None = None,
    workers: Workers | None = None,
    kernel: Kernel | None = None,
) -> Iterator[T]:
    """As ``combine``, with ``then`` applied to each block by the worker that made it."""
    return _combining(then, rows, combination, None, block, workers, kernel)


def combine_into(
    out_D: npt.NDArray[Any], rows: Rows, combination: Combination, *, kernel: Kernel | None = None
) -> bool:
    """As ``combine``, into one row in memory, by threads; returns whether all of it is finite.

    ``out_D`` is float32, or float64 where the rows are.
    """

    def finite(_: int, row_C: Row) -> bool:
        return first_not_finite(row_C) is None

    return all(list(_combining(finite, rows, combination, out_D, None, None, kernel)))


def _combining(
    then: Callable[[int, Row], T],
    rows: Rows,
    combination: Combination,
    out_D: npt.NDArray[Any] | None,
    block: int | None,
    workers: Workers | None,
    kernel: Kernel | None,
) -> Iterator[T]:
    used, work = _work(rows, combination)
    columns = block or block_columns(used.num_rows)
    combined = _Combined(used, work, kernel or best_kernel(), _rooms(used, columns), then, out_D)
    return (workers or Threads()).map(combined, _spans(rows.num_columns, columns))


def squared_norms(
    rows: Rows, *, workers: Workers | None = None, kernel: Kernel | None = None
) -> npt.NDArray[np.float64]:
    """‖x_i‖² of each row, float64: the diagonal part of ``squared_distances`` alone, one read of the rows."""
    columns = block_columns(rows.num_rows)
    measure = _Norms(rows, kernel or best_kernel(), columns, _rooms(rows, columns))
    total_N = np.zeros(rows.num_rows)
    for part_N in (workers or Threads()).map(measure, _spans(rows.num_columns, MAX_BLOCK_COLUMNS)):
        total_N += part_N
    return total_N


def sampled_columns(rows: Rows, columns_S: npt.NDArray[np.int64]) -> ArrayRows:
    """Some columns of every row, in memory: N x S float32. ``columns_S`` is ascending."""
    sample_NS = np.empty((rows.num_rows, columns_S.size), np.float32)
    rooms = _rooms(rows, block_columns(rows.num_rows))
    for start, stop in _spans(rows.num_columns, block_columns(rows.num_rows)):
        first, last = np.searchsorted(columns_S, (start, stop))
        if first == last:
            continue
        with rooms.lent() as room_NC:
            for row_C, sample_S in zip(rows.read(start, stop, room_NC), sample_NS, strict=True):
                sample_S[first:last] = row_C[columns_S[first:last] - start]
    return ArrayRows(sample_NS)


def rows_not_finite(rows: Rows, *, workers: Workers | None = None, kernel: Kernel | None = None) -> tuple[int, ...]:
    """The indices of the rows that hold NaN or an infinity, ascending."""
    columns = block_columns(rows.num_rows)
    look = _Finite(rows, kernel or best_kernel(), _rooms(rows, columns))
    finite_N = np.ones(rows.num_rows, np.bool_)
    for part_N in (workers or Threads()).map(look, _spans(rows.num_columns, columns)):
        finite_N &= part_N
    return tuple(np.flatnonzero(~finite_N).tolist())


def _as_it_is(start: int, row_C: Row) -> tuple[int, Row]:
    return start, row_C


def _spans(num_columns: int, columns: int) -> list[Span]:
    return [(start, min(start + columns, num_columns)) for start in range(0, num_columns, columns)]


class _Rooms:
    """Room for one block of rows, used again by whoever computes the next one."""

    def __init__(self, num_rows: int, columns: int) -> None:
        self._shape = num_rows, columns
        self._free: SimpleQueue[npt.NDArray[np.float32]] = SimpleQueue()

    @contextmanager
    def lent(self) -> Iterator[npt.NDArray[np.float32]]:
        try:
            room_NC = self._free.get_nowait()
        except Empty:
            room_NC = np.empty(self._shape, np.float32)  # pages are only taken when they are written
        try:
            yield room_NC
        finally:
            self._free.put(room_NC)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Rooms, self._shape  # another process makes its own


def _rooms(rows: Rows, columns: int) -> _Rooms:
    return _Rooms(rows.num_rows, min(columns, rows.num_columns))


@dataclass(frozen=True, slots=True)
class _Distances:
    """One span's part of every distance."""

    rows: Rows
    kernel: Kernel
    columns: int
    rooms: _Rooms

    def __call__(self, span: Span) -> npt.NDArray[np.float64]:
        sums_PP = np.zeros((self.rows.num_rows + 1, self.rows.num_rows + 1))
        with self.rooms.lent() as room_NC:
            for start in range(*span, self.columns):
                stop = min(start + self.columns, span[1])
                self.kernel.squared_distances(self.rows.read(start, stop, room_NC), sums_PP)
        return sums_PP


@dataclass(frozen=True, slots=True)
class _Norms:
    """One span's part of every norm."""

    rows: Rows
    kernel: Kernel
    columns: int
    rooms: _Rooms

    def __call__(self, span: Span) -> npt.NDArray[np.float64]:
        sums_N22 = np.zeros((self.rows.num_rows, 2, 2))
        with self.rooms.lent() as room_NC:
            for start in range(*span, self.columns):
                block = self.rows.read(start, min(start + self.columns, span[1]), room_NC)
                for row_C, sums_22 in zip(block, sums_N22, strict=True):
                    self.kernel.squared_distances([row_C], sums_22)
        return np.ascontiguousarray(sums_N22[:, 0, 1])


@dataclass(frozen=True, slots=True)
class _Finite:
    """Which rows are finite in one span."""

    rows: Rows
    kernel: Kernel
    rooms: _Rooms

    def __call__(self, span: Span) -> npt.NDArray[np.bool_]:
        with self.rooms.lent() as room_NC:
            return self.kernel.finite(self.rows.read(*span, room_NC))


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    weights_N: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Ranks:
    """A statistic with its network, over the rows or over mixtures of them."""

    statistic: Middle | Closest
    network: Network
    mix_MN: npt.NDArray[np.float64] | None


def _work(rows: Rows, combination: Combination) -> tuple[Rows, _Sum | _Ranks]:
    """The rows a combination reads, and what it does with a block of them."""
    match combination:
        case WeightedSum(weights_N):
            if weights_N.shape != (rows.num_rows,) or not np.isfinite(weights_N).all():
                raise InvalidUpdate(f"{rows.num_rows} updates need as many finite weights, got shape {weights_N.shape}")
            used = combination.used
            return chosen(rows, used), _Sum(np.ascontiguousarray(weights_N[list(used)]))
        case Coordinatewise(statistic, taken, mix_MN):
            if not taken:
                raise InvalidUpdate("a coordinate rule needs at least one update")
            network = _network(statistic, len(taken))
            if mix_MN is None:
                return chosen(rows, taken), _Ranks(statistic, network, None)
            used = combination.used
            return chosen(rows, used), _Ranks(statistic, network, mix_MN[np.ix_(taken, used)])


def _network(statistic: Middle | Closest, num_lines: int) -> Network:
    match statistic:
        case Middle(drop):
            return middle_network(num_lines, drop)
        case Closest():
            return sorting_network(num_lines)


@dataclass(frozen=True, slots=True)
class _Combined:
    """One span of the combined row."""

    rows: Rows
    work: _Sum | _Ranks
    kernel: Kernel
    rooms: _Rooms
    then: Callable[[int, Row], Any]
    out_D: npt.NDArray[Any] | None = None

    def __call__(self, span: Span) -> Any:
        with self.rooms.lent() as room_NC:
            block = self.rows.read(*span, room_NC)
            out_C = np.empty(span[1] - span[0], np.float32) if self.out_D is None else self.out_D[slice(*span)]
            match self.work:
                case _Sum(weights_N):
                    self.kernel.weighted_sum(block, weights_N, out_C)
                case _Ranks(statistic, network, mix_MN):
                    if mix_MN is not None:
                        mixed_MC = np.empty((len(mix_MN), out_C.size), out_C.dtype)
                        for weights_N, mixed_C in zip(mix_MN, mixed_MC, strict=True):
                            self.kernel.weighted_sum(block, weights_N, mixed_C)
                        block = list(mixed_MC)
                    if isinstance(statistic, Closest):
                        finite = self.kernel.closest(block, network, statistic.count, out_C)
                    else:
                        finite = self.kernel.middle(block, network, out_C)
                    if not finite:
                        raise NotFinite("an update holds a value that is not finite")
        return self.then(span[0], out_C)
