"""Networks of comparisons that bring the wanted ranks of N values into place, for all columns at once.

The lines are taken in runs of four. Each run is sorted, then runs are merged: two sorted runs become
the smaller and the larger half of both, each sorted. A network that sorts single values sorts runs
too if it merges where it would compare (Baudet and Stevenson, Optimal Sorting Algorithms for
Parallel Computers, IEEE Transactions on Computers C-27, 1978); this one is Batcher's merge exchange
(Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M), and four lines are sorted and merged
by his odd-even merge (5.3.4). Of twenty lines it makes a tenth more comparisons than merge exchange
by itself, and half the reads and writes, for eight lines fit into a processor's registers. What can
no longer change what is asked for is left out, from the end backwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# Which ends of a merge, or of a comparison, are used later: 1 the smaller, 2 the larger, 3 both.
MINIMUM, MAXIMUM, BOTH = 1, 2, 3

# Lines that are ordered together; as in kernels.c.
RUN = 4
_SORT = ((0, 1), (2, 3), (0, 2), (1, 3), (1, 2))
_MERGE = ((0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6))

Step = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Network:
    """What to do with ``num_lines`` lines, and the lines that hold the result.

    Attributes:
        num_lines: N.
        runs: (i, j, what), i and j multiples of RUN. With i = j the lines i to i + RUN - 1 are sorted; with
            i < j they are merged with those from j on, and become the smaller half of both if ``what``
            has MINIMUM, those from j on the larger half if it has MAXIMUM. Lines from N on, up to a
            multiple of RUN, stand for infinite values. Every run is sorted first, or there is no work.
        steps: the same as single comparisons, (i, j, what) with i < j < N: line i becomes the smaller
            of both if ``what`` has MINIMUM, line j the larger if it has MAXIMUM.
        kept: the lines that hold the wanted values afterwards, ascending.
    """

    num_lines: int
    runs: tuple[Step, ...]
    steps: tuple[Step, ...]
    kept: tuple[int, ...]


@lru_cache(maxsize=64)
def middle_network(num_lines: int, drop: int) -> Network:
    """Keeps all but the ``drop`` smallest and the ``drop`` largest values, in no particular order."""
    return _network(num_lines, range(drop, num_lines - drop), "any order")


@lru_cache(maxsize=64)
def sorting_network(num_lines: int) -> Network:
    """Sorts all values, ascending."""
    return _network(num_lines, range(num_lines), "sorted")


def _network(num_lines: int, kept: range, order: Literal["any order", "sorted"]) -> Network:
    runs = _runs(num_lines, kept, order)
    return Network(num_lines, runs, _steps(num_lines, runs, kept), tuple(kept))


def _merge_exchange(num_lines: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    top = 1 << max((num_lines - 1).bit_length() - 1, 0)
    p = top if num_lines > 1 else 0
    while p:
        q, r, distance = top, 0, p
        while True:
            pairs += [(i, i + distance) for i in range(num_lines - distance) if i & p == r]
            if q == p:
                break
            distance, q, r = q - p, q >> 1, p
        p >>= 1
    return pairs


def _runs(num_lines: int, kept: range, order: Literal["any order", "sorted"]) -> tuple[Step, ...]:
    num_runs = -(-num_lines // RUN)
    # What becomes of a run's values from a merge on: dropped, kept beside others, or needed in their ranks.
    fates = [_fate(range(start, min(start + RUN, num_lines)), kept, order) for start in range(0, num_lines, RUN)]
    merges: list[Step] = []
    for i, j in reversed(_merge_exchange(num_runs)):
        if fates[i] == fates[j] != "ranked":
            continue  # both go the same way: which is which does not matter
        what = (MINIMUM if fates[i] != "dropped" else 0) | (MAXIMUM if fates[j] != "dropped" else 0)
        merges.append((RUN * i, RUN * j, what))
        fates[i] = fates[j] = "ranked"
    sorts = [(RUN * i, RUN * i, BOTH) for i in range(num_runs)] if "ranked" in fates else []
    return (*sorts, *reversed(merges))


def _fate(lines: range, kept: range, order: Literal["any order", "sorted"]) -> str:
    num_kept = sum(line in kept for line in lines)
    if not num_kept:
        return "dropped"
    return "kept" if num_kept == len(lines) and order == "any order" else "ranked"


def _steps(num_lines: int, runs: tuple[Step, ...], kept: Iterable[int]) -> tuple[Step, ...]:
    """The comparisons that have an end which is used later; those with an infinite value change nothing."""
    used = set(kept)
    steps: list[Step] = []
    for first, second, _ in reversed(runs):
        for low, high in reversed(_SORT if first == second else _MERGE):
            i, j = (first + line if line < RUN else second + line - RUN for line in (low, high))
            what = (MINIMUM if i in used else 0) | (MAXIMUM if j in used else 0)
            if what and j < num_lines:
                steps.append((i, j, what))
                used |= {i, j}
    return tuple(reversed(steps))
