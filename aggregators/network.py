"""Compare-exchange networks that bring the wanted ranks of N values into place, for all columns at once.

Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M), pruned
backwards to the work that can still change what is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# Which ends of a comparison are used later: 1 the smaller, 2 the larger, 3 both.
MINIMUM, MAXIMUM, BOTH = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Network:
    """Steps over ``num_lines`` lines, and the lines that hold the result.

    Attributes:
        num_lines: N.
        steps: (i, j, what) with i < j: line i becomes the smaller of both if ``what`` has MINIMUM,
            line j the larger if it has MAXIMUM.
        kept: the lines that hold the wanted values afterwards, ascending.
    """

    num_lines: int
    steps: tuple[tuple[int, int, int], ...]
    kept: tuple[int, ...]


@lru_cache(maxsize=64)
def middle_network(num_lines: int, drop: int) -> Network:
    """Keeps all but the ``drop`` smallest and the ``drop`` largest values, in no particular order."""
    kept = tuple(range(drop, num_lines - drop))
    return Network(num_lines, _pruned(num_lines, kept, "any order"), kept)


@lru_cache(maxsize=64)
def sorting_network(num_lines: int) -> Network:
    """Sorts all values, ascending."""
    kept = tuple(range(num_lines))
    return Network(num_lines, _pruned(num_lines, kept, "sorted"), kept)


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


def _pruned(
    num_lines: int, kept: tuple[int, ...], order: Literal["any order", "sorted"]
) -> tuple[tuple[int, int, int], ...]:
    # What becomes of each line's value from a step on: dropped, kept beside others, or needed in its rank.
    fate = ["dropped"] * num_lines
    for line in kept:
        fate[line] = "kept" if order == "any order" else "ranked"
    steps: list[tuple[int, int, int]] = []
    for i, j in reversed(_merge_exchange(num_lines)):
        if fate[i] == fate[j] != "ranked":
            continue  # both go the same way: which is which does not matter
        what = (MINIMUM if fate[i] != "dropped" else 0) | (MAXIMUM if fate[j] != "dropped" else 0)
        steps.append((i, j, what))
        fate[i] = fate[j] = "ranked"
    return tuple(reversed(steps))
