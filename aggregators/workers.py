"""Who computes the blocks of a pass: threads of this process, or another pool of the same shape."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

MAX_THREADS = 8

# A block of columns: the first, and the one after the last.
Span: TypeAlias = tuple[int, int]
T = TypeVar("T")


class Workers(Protocol):
    """Computes independent blocks, in any order and at any place."""

    def map(self, function: Callable[[Span], T], spans: Sequence[Span]) -> Iterator[T]:
        """What the function makes of each span, in the order of the spans; a few are in flight."""
        ...


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of this process: the kernels run without the interpreter's lock.

    Attributes:
        num_threads: how many; None takes the machine's cores, MAX_THREADS at most.
    """

    num_threads: int | None = None

    def map(self, function: Callable[[Span], T], spans: Sequence[Span]) -> Iterator[T]:
        """As ``Workers.map``; with one thread or one span everything is computed in the caller's."""
        num_threads = min(self.num_threads or min(os.cpu_count() or 1, MAX_THREADS), len(spans))
        if num_threads < 2:
            yield from map(function, spans)
            return
        pool = ThreadPoolExecutor(num_threads, "aggregate")
        try:
            in_flight: deque[Future[T]] = deque()
            for span in spans:
                in_flight.append(pool.submit(function, span))
                if len(in_flight) > num_threads:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
