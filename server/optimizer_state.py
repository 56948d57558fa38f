"""A server optimizer's state at rest: a safetensors file with one float32 tensor ``states``.

Its shape is D x S: the S states of each coordinate lie side by side, so that the file is written
and read front to back while the model is, block by block, and hashed on the way.

Shape suffixes: D trainable values, S states, C the coordinates of one block.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import Corrupt
from ..files import read_exactly
from ..layout import Layout
from .optimizers import ServerOptimizer, States

FLOAT_BYTES = 4


def state_header(optimizer: ServerOptimizer, layout: Layout) -> bytes:
    """The file's first bytes: they name the optimizer and pin the layout."""
    shape = [layout.num_trainable, len(optimizer.initial_states)]
    table = {
        "__metadata__": {"foedus.layout_digest": layout.digest, "foedus.server_optimizer": optimizer.name},
        "states": {"dtype": "F32", "shape": shape, "data_offsets": [0, FLOAT_BYTES * shape[0] * shape[1]]},
    }
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def interleaved(states: States) -> npt.NDArray[np.float32]:
    """The states of one block as they lie in the file: C x S."""
    return np.ascontiguousarray(np.stack(states, axis=1))


@dataclass(frozen=True, slots=True)
class FreshState:
    """The state before the first round: each of S states holds one value everywhere."""

    values: tuple[float, ...]

    def read(self, start: int, stop: int) -> States:
        """S arrays of ``stop - start`` values."""
        return tuple(np.full(stop - start, value, np.float32) for value in self.values)


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state that a round left behind."""

    path: Path
    data_offset: int
    num_states: int

    @staticmethod
    def open(path: Path, optimizer: ServerOptimizer, layout: Layout) -> StoredState:
        """Check that the file belongs to this optimizer and layout.

        Raises:
            Corrupt: it does not, or is cut short.
            StoreError: the file is missing or cannot be read.
        """
        expected = state_header(optimizer, layout)
        seen = bytearray(len(expected))
        read_exactly(path, 0, memoryview(seen))
        if seen != expected:
            raise Corrupt(f"{path} is not the {optimizer.name} state of this run's model")
        return StoredState(path, len(expected), len(optimizer.initial_states))

    def read(self, start: int, stop: int) -> States:
        """S arrays of ``stop - start`` values.

        Raises:
            Corrupt: the file is cut short.
        """
        block_CS = np.empty((stop - start, self.num_states), np.float32)
        offset = self.data_offset + FLOAT_BYTES * self.num_states * start
        read_exactly(self.path, offset, block_CS.data.cast("B"))
        return tuple(np.ascontiguousarray(block_CS[:, index]) for index in range(self.num_states))
