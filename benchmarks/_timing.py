"""CPU time of works measured in turn, so that what else runs on the machine falls on all of them alike."""

from __future__ import annotations

import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Work = Callable[[], object]

# A work that is over sooner is done again, for the clocks to tell something.
MIN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Taken:
    """Medians of what one call of a work took: CPU seconds of all threads, and seconds on the wall."""

    cpu: float
    wall: float


def in_turn(works: Mapping[str, Work], repeats: int) -> dict[str, Taken]:
    """What each work takes, after one call of each that does not count; at least three rounds."""
    for work in works.values():
        work()
    seen: dict[str, list[Taken]] = {name: [] for name in works}
    for _ in range(max(repeats, 3)):
        for name, work in works.items():
            seen[name].append(_once(work))
    return {
        name: Taken(statistics.median(taken.cpu for taken in of), statistics.median(taken.wall for taken in of))
        for name, of in seen.items()
    }


def peak_mb(work: Work) -> float:
    """What one call allocates at its worst, as far as Python and numpy know; what was there before is not counted."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _once(work: Work) -> Taken:
    calls, cpu, wall = 0, time.process_time(), time.perf_counter()
    while not calls or time.perf_counter() - wall < MIN_SECONDS:
        work()
        calls += 1
    return Taken((time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls)
