"""A site's update as it lies on the disk: D float32 differences, B float32 buffers, C int64 counters.

Shape suffixes: D trainable values, B floating buffer values, C integer counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InvalidUpdate, LayoutMismatch
from ..files import read_exactly, storing
from ..layout import Layout, Role, TensorSpec

FLOAT_BYTES = 4
SCAN_VALUES = 1 << 18
# Its square still fits float32, so that one site cannot overflow an optimizer's second moments.
LARGEST = 1e18


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """An update of the right size for its layout; ``open`` makes sure of that."""

    path: Path
    layout: Layout

    @staticmethod
    def open(path: Path, layout: Layout) -> UpdateFile:
        """Check the size and read nothing.

        Raises:
            LayoutMismatch: the file has another size than an update of this layout.
            StoreError: the file is missing.
        """
        with storing(f"reading {path}"):
            size = path.stat().st_size
        if size != layout.update_bytes:
            raise LayoutMismatch(f"the update has {size} bytes, expected {layout.update_bytes} for the run's model")
        return UpdateFile(path, layout)

    @property
    def buffers_offset(self) -> int:
        """Where the buffers start, in bytes."""
        return FLOAT_BYTES * self.layout.num_trainable

    @property
    def counters_offset(self) -> int:
        """Where the counters start, in bytes."""
        return FLOAT_BYTES * (self.layout.num_trainable + self.layout.num_buffers)


def scan(layout: Layout, path: Path) -> None:
    """Read an update once, in blocks, and refuse it unless every float is finite and within ``LARGEST``.

    Raises:
        LayoutMismatch: the file has another size than an update of this layout.
        InvalidUpdate: with the first tensor that holds NaN, infinity or an absurdly large value.
        StoreError: the file cannot be read.
    """
    UpdateFile.open(path, layout)
    num_floats = layout.num_trainable + layout.num_buffers
    room = np.empty(min(SCAN_VALUES, num_floats), np.float32)
    for start in range(0, num_floats, SCAN_VALUES):
        block = room[: min(SCAN_VALUES, num_floats - start)]
        read_exactly(path, FLOAT_BYTES * start, block.data.cast("B"))
        # As a rule one product settles it: what is not finite or too large makes it so.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.dot(block, block) < LARGEST * LARGEST:
                continue
        bad = _first_unusable(block)
        if bad is not None:
            tensor = float_tensor_at(layout, start + bad)
            raise InvalidUpdate(
                f"the update holds {block[bad]} in {tensor.role} tensor {tensor.name!r}",
                hint="lower the local learning rate, or look for invalid values in the data",
            )


def _first_unusable(block: npt.NDArray[np.float32]) -> int | None:
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~(np.abs(block) <= LARGEST))
    return int(bad[0]) if bad.size else None


def float_tensor_at(layout: Layout, position: int) -> TensorSpec:
    """The tensor that owns a position among the D trainable values and, after them, the B buffer values."""
    for tensor in _floats(layout):
        if position < tensor.size:
            return tensor
        position -= tensor.size
    raise IndexError(f"the layout has no float value {position} past its last")


def _floats(layout: Layout) -> Iterator[TensorSpec]:
    yield from layout.of(Role.TRAINABLE)
    yield from layout.of(Role.BUFFER)
