"""What leaves the site: the bytes of an update.

Little-endian, without padding: D trainable differences as float32, B buffer values as float32,
C counters as int64, in layout order. ``Layout.update_bytes`` is the exact length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidUpdate
from ..layout import Layout, Role, first_not_finite
from ..modelfile import Model

BLOCK_VALUES = 1 << 18


def update_blocks(received: Model, trained: Model) -> Iterator[memoryview]:
    """The update in blocks of at most 2 MiB, so that it never stands in memory a second time.

    Raises:
        LayoutMismatch: training changed a tensor's name, shape, dtype or role.
        InvalidUpdate: a value is not finite; the tensor is named.
    """
    layout = received.layout
    layout.require(trained.layout, "the trained model")
    for start in range(0, layout.num_trainable, BLOCK_VALUES):
        window = slice(start, start + BLOCK_VALUES)
        with np.errstate(over="ignore", invalid="ignore"):
            block = trained.trainable_D[window] - received.trainable_D[window]
        _require_finite(block, layout, Role.TRAINABLE, start)
        yield _bytes(block, "<f4")
    for start in range(0, layout.num_buffers, BLOCK_VALUES):
        block = trained.buffers_B[start : start + BLOCK_VALUES]
        _require_finite(block, layout, Role.BUFFER, start)
        yield _bytes(block, "<f4")
    for start in range(0, layout.num_counters, BLOCK_VALUES):
        yield _bytes(trained.counters_C[start : start + BLOCK_VALUES], "<i8")


def _bytes(block: npt.NDArray[Any], dtype: str) -> memoryview:
    return np.ascontiguousarray(block, dtype).data.cast("B")


def _require_finite(block: npt.NDArray[Any], layout: Layout, role: Role, start: int) -> None:
    first = first_not_finite(block)
    if first is None:
        return
    raise InvalidUpdate(
        f"training made tensor {_tensor_at(layout, role, start + first)!r} {block[first]}, expected finite values",
        hint="lower the learning rate, or look for invalid values in the data",
    )


def _tensor_at(layout: Layout, role: Role, index: int) -> str:
    for tensor in layout.of(role):
        if index < tensor.size:
            return tensor.name
        index -= tensor.size
    raise IndexError(f"the layout has no {role} value at {index}")
