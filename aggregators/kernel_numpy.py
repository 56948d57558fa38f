"""The inner loops in numpy, for machines where nothing could be compiled.

Shape suffixes: N rows, C the columns of a part, P = N + 1 points, the last the origin; S shifts,
G chunks, K steps through a chunk, L lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .kernel import CHUNK_COLUMNS, LANES
from .network import MAXIMUM, MINIMUM, Network
from .rows import Block

# The columns that the sum and the coordinate rules work on at a time: a line of them stays in the cache.
PART_COLUMNS = 16384
# Distances: numpy takes three times as long over shorter stretches of memory.
MIN_STRETCH = 4096
# Distances: how many sums of lanes wait to be folded together.
MAX_LANE_SUMS = 1 << 18

Line: TypeAlias = npt.NDArray[np.floating[Any]]
Double: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NumpyKernel:
    """``Kernel`` in numpy alone. Takes float64 rows too, compares them as such and writes float64 results."""

    @property
    def name(self) -> str:
        """Always "numpy"."""
        return "numpy"

    def squared_distances(self, block: Block, sums_PP: Double) -> None:
        """As ``Kernel.squared_distances``, with ``sums_PP`` symmetric.

        The points stand in a circle, and each meets the one that is 1, 2, … places further, up to
        half the circle: every pair is met, in long stretches of memory.
        """
        num_points, num_shifts = len(block) + 1, (len(block) + 1) // 2
        if not block or not block[0].size:
            return
        first_P = np.arange(num_points)
        second_SP = (first_P + np.arange(1, num_shifts + 1)[:, None]) % num_points
        sums_SP = sums_PP[first_P, second_SP]
        num_chunks = min(-(-MIN_STRETCH // (num_points * LANES)), -(-block[0].size // CHUNK_COLUMNS))
        points_KPGL = np.zeros((CHUNK_COLUMNS // LANES, num_points + num_shifts, num_chunks, LANES), block[0].dtype)
        squares_KPGL = np.empty_like(points_KPGL[:, :num_points], order="C")
        batch = min(num_shifts, max(1, MAX_LANE_SUMS // squares_KPGL[0].size))
        lanes_SPGL = np.empty((batch, *squares_KPGL[0].shape), block[0].dtype)
        with np.errstate(all="ignore"):
            for start in range(0, block[0].size, num_chunks * CHUNK_COLUMNS):
                _lay_out(block, start, points_KPGL)
                for done in range(0, num_shifts, batch):
                    met_SPGL = lanes_SPGL[: num_shifts - done]
                    for shift, lanes_PGL in enumerate(met_SPGL, done + 1):
                        shifted_KPGL = points_KPGL[:, shift : shift + num_points]
                        np.subtract(points_KPGL[:, :num_points], shifted_KPGL, out=squares_KPGL)
                        np.multiply(squares_KPGL, squares_KPGL, out=squares_KPGL)
                        np.add.reduce(squares_KPGL, axis=0, out=lanes_PGL)
                    for chunk_SP in _folded(met_SPGL):
                        sums_SP[done : done + len(met_SPGL)] += chunk_SP
        sums_PP[first_P, second_SP] = sums_SP
        sums_PP[second_SP, first_P] = sums_SP

    def weighted_sum(self, block: Block, weights_N: Double, out_C: Line) -> None:
        """As ``Kernel.weighted_sum``."""
        read = [(row_C, weight) for row_C, weight in zip(block, weights_N.tolist(), strict=True) if weight]
        with np.errstate(all="ignore"):
            for part, (sum_C, product_C) in _parts(out_C.size, 2):
                sum_C[:] = 0
                for row_C, weight in read:
                    np.copyto(product_C, row_C[part])
                    np.multiply(product_C, weight, out=product_C)
                    np.add(sum_C, product_C, out=sum_C)
                np.copyto(out_C[part], sum_C, casting="same_kind")

    def middle(self, block: Block, network: Network, out_C: Line) -> bool:
        """As ``Kernel.middle``."""
        room = _room(block)
        finite = True
        with np.errstate(all="ignore"):
            for part, (sum_C,) in _parts(out_C.size, 1):
                inputs = [row_C[part] for row_C in block]
                finite = finite and all(map(_all_finite, inputs))
                lines = _put_in_place(inputs, network, room)
                _add_up([lines[line] for line in network.kept], sum_C)
                np.divide(sum_C, len(network.kept), out=sum_C)
                np.copyto(out_C[part], sum_C, casting="same_kind")
        return finite

    def closest(self, block: Block, network: Network, count: int, out_C: Line) -> bool:
        """As ``Kernel.closest``."""
        room = _room(block)
        finite = True
        with np.errstate(all="ignore"):
            for part, (sum_C, middle_C, pair_C) in _parts(out_C.size, 3):
                lines = _put_in_place([row_C[part] for row_C in block], network, room)
                # A comparison hands NaN to both of its ends, so that first and last line tell of all of them.
                finite = finite and _all_finite(lines[0]) and _all_finite(lines[-1])
                np.add(lines[(len(lines) - 1) // 2], lines[len(lines) // 2], out=middle_C, dtype=np.float64)
                chosen = lines[:count]
                for k, (low_C, high_C) in enumerate(zip(lines, lines[count:], strict=False)):
                    np.add(high_C, low_C, out=pair_C, dtype=np.float64)
                    chosen[k % count] = np.where(np.less(pair_C, middle_C), high_C, chosen[k % count])
                _add_up(chosen, sum_C)
                np.divide(sum_C, count, out=sum_C)
                np.copyto(out_C[part], sum_C, casting="same_kind")
        return finite

    def finite(self, block: Block) -> npt.NDArray[np.bool_]:
        """As ``Kernel.finite``."""
        return np.array([_all_finite(row_C) for row_C in block], np.bool_)


def _lay_out(block: Block, start: int, points_KPGL: Line) -> None:
    """Put ``num_chunks`` chunks of every row side by side, those of the first points again behind the last."""
    num_steps, _, num_chunks, num_lanes = points_KPGL.shape
    # One item per step, so that numpy moves all its lanes at once.
    item = np.dtype((np.void, num_lanes * points_KPGL.itemsize))
    items_KPG = points_KPGL.view(item)[..., 0]
    columns = num_chunks * num_steps * num_lanes
    for point, row_C in enumerate(block):
        part_C = np.ascontiguousarray(row_C[start : start + columns])
        if part_C.size < columns:
            part_C = np.concatenate([part_C, np.zeros(columns - part_C.size, part_C.dtype)])
        items_KPG[:, point] = part_C.view(item).reshape(num_chunks, num_steps).T
    num_points = len(block) + 1
    items_KPG[:, num_points:] = items_KPG[:, : items_KPG.shape[1] - num_points]


def _folded(lanes_SPGL: Line) -> list[Double]:
    """The lanes' sums of each chunk, widened and folded in halves: S x P sums per chunk."""
    halves = np.ascontiguousarray(lanes_SPGL.transpose(3, 2, 0, 1), np.float64)
    while len(halves) > 1:
        halves = halves[: len(halves) // 2] + halves[len(halves) // 2 :]
    return list(halves[0])


def _parts(num_columns: int, num_sums: int) -> Iterator[tuple[slice, Double]]:
    """The columns part by part, each with room for ``num_sums`` lines of float64."""
    sums = np.empty((num_sums, min(PART_COLUMNS, num_columns)))
    for start in range(0, num_columns, PART_COLUMNS):
        stop = min(start + PART_COLUMNS, num_columns)
        yield slice(start, stop), sums[:, : stop - start]


def _room(block: Block) -> list[Line]:
    """Room for the lines of a part, and one more."""
    return list(np.empty((len(block) + 1, min(PART_COLUMNS, block[0].size)), block[0].dtype))


def _put_in_place(lines: list[Line], network: Network, room: list[Line]) -> list[Line]:
    """The lines after the network, in the room; the given ones are not written to."""
    lines = list(lines)
    *own, spare = (line_C[: lines[0].size] for line_C in room)
    for i, j, what in network.steps:
        low_C, high_C = lines[i], lines[j]
        if what & MINIMUM:
            lines[i] = np.minimum(low_C, high_C, out=spare)
            own[i], spare = spare, own[i]
        if what & MAXIMUM:
            lines[j] = np.maximum(low_C, high_C, out=own[j])
    return lines


def _add_up(lines: Sequence[Line], sum_C: Double) -> None:
    """The sum of the lines, one after the other, from +0."""
    sum_C[:] = 0
    for line_C in lines:
        np.add(sum_C, line_C, out=sum_C)


def _all_finite(values_C: Line) -> bool:
    return bool(np.isfinite(values_C).all())
