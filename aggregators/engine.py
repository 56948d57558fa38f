"""Streaming passes over the updates: from weights to one combined row.

Shape suffixes: N updates, D parameters, C the columns of one block.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import InvalidUpdate
from ..layout import first_not_finite
from .aggregate import Aggregate
from .rows import FLOAT_BYTES, ArrayRows, Rows

# Two float64 rows of this length stay in the shared cache; shorter blocks pay for more calls
# (measured by benchmarks/aggregation.py: 128K columns take 0.8 of the time of 16K).
MAX_BLOCK_COLUMNS = 1 << 17
MIN_BLOCK_COLUMNS = 1 << 10
BLOCK_BYTES = 16 << 20
MAX_THREADS = 8


class Weighing(Protocol):
    """A rule that decides by the numbers of examples alone."""

    def weights(self, num_examples_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """float64 weights of the N updates, summing to 1."""
        ...


T = TypeVar("T")


def _as_it_is(start: int, sum_C: npt.NDArray[np.float32]) -> tuple[int, npt.NDArray[np.float32]]:
    return start, sum_C


def block_columns(num_rows: int) -> int:
    """C: how many columns of ``num_rows`` updates are read at a time, within BLOCK_BYTES where it can be."""
    fitting = BLOCK_BYTES // (FLOAT_BYTES * max(num_rows, 1))
    return min(MAX_BLOCK_COLUMNS, max(MIN_BLOCK_COLUMNS, fitting))


def combine(
    rows: Rows, weights_N: npt.NDArray[np.float64], block: int | None = None
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """The weighted sum of the rows, as (first column, float32 values) block by block, in order.

    Products and sums are float64, taken row after row, one rounding each: the result is the same
    bit for bit whatever the block and the machine. A row of weight 0 is left out, so that what it
    holds, NaN and infinity included, leaves no trace. Memory: O(N * block * threads).

    Raises:
        InvalidUpdate: the weights are not N finite numbers.
        StoreError: a row cannot be read; Corrupt if it is cut short.
    """
    return combine_then(_as_it_is, rows, weights_N, block)


def combine_then(
    then: Callable[[int, npt.NDArray[np.float32]], T],
    rows: Rows,
    weights_N: npt.NDArray[np.float64],
    block: int | None = None,
) -> Iterator[T]:
    """As ``combine``, with ``then`` applied to each block on the thread that made it."""
    weights_N = np.asarray(weights_N, np.float64)
    if weights_N.shape != (rows.num_rows,) or not np.isfinite(weights_N).all():
        raise InvalidUpdate(f"{rows.num_rows} updates need as many finite weights, got shape {weights_N.shape}")
    return _blocks(rows, weights_N, block or block_columns(rows.num_rows), then)


def aggregate(rule: Weighing, updates: Rows | npt.ArrayLike, num_examples_N: npt.ArrayLike | None = None) -> Aggregate:
    """Apply a rule to updates and hold the result in memory.

    Args:
        rule: decides what each update weighs.
        updates: a row store, or an N x D array.
        num_examples_N: what each update rests on; None counts each as 1.

    Raises:
        InvalidUpdate: the counts do not fit the updates, or an update of positive weight holds
            a value that is not finite.
        TooFewExamples: the updates rest on no example.
    """
    rows = _as_rows(updates)
    weights_N = rule.weights(np.ones(rows.num_rows) if num_examples_N is None else num_examples_N)
    if weights_N.shape != (rows.num_rows,):
        raise InvalidUpdate(f"{weights_N.size} numbers of examples came with {rows.num_rows} updates")
    update_D = np.empty(rows.num_columns, np.float32)
    for start, row_C in combine(rows, weights_N):
        if first_not_finite(row_C) is not None:
            raise _not_finite(rows, weights_N, start, start + row_C.size)
        update_D[start : start + row_C.size] = row_C
    taken_N = weights_N != 0
    return Aggregate(
        update_D,
        weights_N,
        selected=tuple(np.flatnonzero(taken_N).tolist()),
        rejected=tuple(np.flatnonzero(~taken_N).tolist()),
    )


class _Room:
    """What one thread needs to combine one block."""

    def __init__(self, num_rows: int, columns: int) -> None:
        self.block_NC = np.empty((num_rows, columns), np.float32)
        self.sum_C = np.empty(columns, np.float64)
        self.term_C = np.empty(columns, np.float64)


def _blocks(
    rows: Rows,
    weights_N: npt.NDArray[np.float64],
    block: int,
    then: Callable[[int, npt.NDArray[np.float32]], T],
) -> Iterator[T]:
    columns = min(block, rows.num_columns)
    starts = range(0, rows.num_columns, max(columns, 1))
    num_threads = min(os.cpu_count() or 1, MAX_THREADS, len(starts))
    rooms: SimpleQueue[_Room] = SimpleQueue()
    for _ in range(num_threads):
        rooms.put(_Room(rows.num_rows, columns))

    def combined(start: int) -> T:
        room, stop = rooms.get(), min(start + columns, rows.num_columns)
        try:
            block_NC = rows.read(start, stop, room.block_NC)
            sum_C = _weighted_sum(block_NC, weights_N, room.sum_C[: stop - start], room.term_C[: stop - start])
        finally:
            rooms.put(room)
        return then(start, sum_C)

    if num_threads < 2:
        yield from map(combined, starts)
        return
    # Blocks are independent, so that threads change nothing but the time; a few are in flight.
    pool = ThreadPoolExecutor(num_threads, "combine")
    try:
        in_flight: deque[Future[T]] = deque()
        for start in starts:
            in_flight.append(pool.submit(combined, start))
            if len(in_flight) > num_threads:
                yield in_flight.popleft().result()
        while in_flight:
            yield in_flight.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _weighted_sum(
    block_NC: npt.NDArray[np.float32],
    weights_N: npt.NDArray[np.float64],
    sum_C: npt.NDArray[np.float64],
    term_C: npt.NDArray[np.float64],
) -> npt.NDArray[np.float32]:
    # Separate whole-row calls, not a matrix product: BLAS fuses and reorders by block and by machine.
    sum_C.fill(0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        for row_C, weight in zip(block_NC, weights_N, strict=True):
            if weight != 0:
                np.copyto(term_C, row_C)
                np.multiply(term_C, weight, out=term_C)
                np.add(sum_C, term_C, out=sum_C)
        return sum_C.astype(np.float32)


def _as_rows(updates: Rows | npt.ArrayLike) -> Rows:
    return updates if isinstance(updates, Rows) else ArrayRows(np.asarray(updates))


def _not_finite(rows: Rows, weights_N: npt.NDArray[np.float64], start: int, stop: int) -> InvalidUpdate:
    block_NC = rows.read(start, stop)
    for index, row_C in enumerate(block_NC):
        bad = first_not_finite(row_C)
        if weights_N[index] != 0 and bad is not None:
            return InvalidUpdate(f"update {index} holds {row_C[bad]} at parameter {start + bad}")
    return InvalidUpdate(f"the combined update is not finite between parameters {start} and {stop}")
