"""The n updates of a round as the rows of an n x D matrix that need not fit in memory.

Shape suffixes: N updates, D parameters, C the columns of one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import InvalidUpdate
from ..files import read_exactly

FLOAT_BYTES = 4


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

    def read(self, start: int, stop: int, out_NC: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """Columns ``start`` to ``stop`` of every row, to be read and not changed.

        ``out_NC`` is room the store may use. The block returned may be a view of it or of the
        store itself, and holds until the same room is used again.

        Raises:
            StoreError: a row cannot be read; Corrupt if it is cut short.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ArrayRows:
    """Rows of an array in memory: float32 N x D; other real dtypes are converted.

    Raises:
        InvalidUpdate: the array does not have two dimensions.
    """

    updates_ND: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            updates_ND = np.asarray(self.updates_ND, dtype=np.float32)
        if updates_ND.ndim != 2:
            raise InvalidUpdate(f"the updates have shape {updates_ND.shape}, expected N updates x D parameters")
        object.__setattr__(self, "updates_ND", updates_ND)

    @property
    def num_rows(self) -> int:
        """N."""
        return int(self.updates_ND.shape[0])

    @property
    def num_columns(self) -> int:
        """D."""
        return int(self.updates_ND.shape[1])

    def read(
        self,
        start: int,
        stop: int,
        out_NC: npt.NDArray[np.float32] | None = None,  # noqa: ARG002 (needs no room)
    ) -> npt.NDArray[np.float32]:
        """A view of some columns."""
        return self.updates_ND[:, start:stop]


@dataclass(frozen=True, slots=True)
class FileRows:
    """One row per file: ``num_columns`` little-endian float32 from ``offset_bytes`` on.

    A file is open only while it is read, so that a thousand rows need no thousand descriptors.
    """

    paths: tuple[Path, ...]
    offset_bytes: int
    num_columns: int

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.paths)

    def read(self, start: int, stop: int, out_NC: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """Some columns, read into ``out_NC`` (N rows, at least ``stop - start`` columns) or a new array."""
        if out_NC is None:
            out_NC = np.empty((self.num_rows, stop - start), np.float32)
        block_NC = out_NC[:, : stop - start]
        for path, row_C in zip(self.paths, block_NC, strict=True):
            read_exactly(path, self.offset_bytes + FLOAT_BYTES * start, row_C.data.cast("B"))
        return block_NC
