"""The arithmetic of the engine, one block of columns at a time; compiled where that is possible.

Both kernels give the same bits: products and sums are single roundings in a stated order, so that
a result depends neither on the machine nor on what was installed there.

Shape suffixes: N rows, C the columns of a block, L lines of a network, P = N + 1 points.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from .network import Network
from .rows import Block

# Distances: squares are summed in float32 over this many columns, 16 lanes side by side, and the
# lanes' sums in float64. A block begins at a multiple of it.
CHUNK_COLUMNS = 1024
LANES = 16


class Kernel(Protocol):
    """A set of inner loops. Rows are float32 of equal length; results are written in place.

    Calls may run side by side on different blocks: none keeps anything between two.
    """

    @property
    def name(self) -> str:
        """Which one this is, such as "numpy" or "compiled (avx2)"."""
        ...

    def squared_distances(self, block: Block, sums_PP: npt.NDArray[np.float64]) -> None:
        """Add the block's part of every squared distance to ``sums_PP``, the last point being the origin.

        Per chunk of ``CHUNK_COLUMNS`` columns and pair: lane l adds (x_k - y_k)² for k = l, l + 16,
        … in float32, in that order; the 16 lanes are widened to float64 and folded (first half plus
        second half, four times); the chunk's value is added to the pair's sum. What a last chunk
        lacks counts as zeros. Both triangles are filled; an infinite sum stays infinite.
        """
        ...

    def weighted_sum(self, block: Block, weights_N: npt.NDArray[np.float64], out_C: npt.NDArray[np.float32]) -> None:
        """out = Σ w_i x_i: float64, row after row, product and sum rounded apart, the total rounded to
        float32; a row of weight 0 is not read, so that NaN in it leaves no trace."""
        ...

    def middle(self, block: Block, network: Network, out_C: npt.NDArray[np.float32]) -> bool:
        """The mean of the network's kept lines per column: float64 sum line after line from +0, divided by
        their number, rounded to float32.

        Returns whether every value of the block is finite; otherwise the result means nothing. Looking
        while the values are in the cache saves a pass over them.
        """
        ...

    def closest(self, block: Block, network: Network, count: int, out_C: npt.NDArray[np.float32]) -> bool:
        """The mean of the ``count`` values closest to the median per column, by a full sorting network.

        With the lines sorted and m = l[(n-1)//2] + l[n//2] twice the median, in float64, ``count`` slots
        begin with the first lines: for k = 0 … n-count-1 in order, slot k mod count becomes l[k+count]
        where l[k+count] + l[k] < m (float64), that is where it lies nearer to the median than l[k]. The
        result is the float64 sum of the slots from +0, slot after slot, over ``count``, rounded to float32.
        A sum that adds and later takes away would lose every digit to one value far below the others.
        Returns whether every value of the block is
        finite, as ``middle``.
        """
        ...

    def finite(self, block: Block) -> npt.NDArray[np.bool_]:
        """For each row, whether all its values in the block are finite."""
        ...
