"""What an aggregation rule carries from round to round: rows of an update's length, each with a name.

At rest a safetensors file, one float32 tensor per row. Centered clipping keeps one, the round's
combined update; FoolsGold one for each site, the sum of its updates so far.

Shape suffix: D trainable values.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..aggregators.rows import FLOAT_BYTES, MappedRows, Window
from ..errors import Corrupt
from ..files import read_exactly
from ..layout import Layout
from .hashed_file import HashedFile, WrittenFile, hashed_file
from .update_file import UpdateFile

LAST_AGGREGATE = "aggregate"  # no site's name: the rules that keep it keep nothing else
MAX_HEADER_BYTES = 1 << 24
COPIED_VALUES = 1 << 18


def rows_header(names: Iterable[str], layout: Layout) -> bytes:
    """The file's first bytes: they name the rows in order and pin the layout."""
    row_bytes = FLOAT_BYTES * layout.num_trainable
    table: dict[str, object] = {"__metadata__": {"foedus.layout_digest": layout.digest}}
    for index, name in enumerate(names):
        offsets = [index * row_bytes, (index + 1) * row_bytes]
        table[name] = {"dtype": "F32", "shape": [layout.num_trainable], "data_offsets": offsets}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a state file, by name."""

    windows: Mapping[str, Window]

    @staticmethod
    def open(path: Path, layout: Layout) -> StoredRows:
        """Read where the rows are.

        Raises:
            Corrupt: the file is no such state of this layout.
            StoreError: it is missing or cannot be read.
        """
        size = bytearray(8)
        read_exactly(path, 0, memoryview(size))
        (num_bytes,) = struct.unpack("<Q", size)
        if num_bytes > MAX_HEADER_BYTES:
            raise Corrupt(f"{path} is not the aggregator's state of this run's model")
        text = bytearray(num_bytes)
        read_exactly(path, 8, memoryview(text))
        try:
            names = [name for name in json.loads(text) if name != "__metadata__"]
        except (ValueError, TypeError):
            names = []
        if rows_header(names, layout) != bytes(size + text):
            raise Corrupt(f"{path} is not the aggregator's state of this run's model")
        row_bytes = FLOAT_BYTES * layout.num_trainable
        first = 8 + num_bytes
        return StoredRows({name: Window(path, first + index * row_bytes) for index, name in enumerate(names)})

    def rows(self, names: Iterable[str], layout: Layout) -> MappedRows:
        """Some of the rows, in the order asked for."""
        return MappedRows(tuple(self.windows[name] for name in names), layout.num_trainable)


def add_to_histories(before: Path | None, updates: Mapping[str, UpdateFile], layout: Layout, out: Path) -> WrittenFile:
    """Write the sum of each site's updates: those before, and these; a site that sent none keeps its sum.

    Args:
        before: the state after the round before; None in the first round.
        updates: this round's, by site.
        layout: the run's model.
        out: where the new state appears, whole or not at all.

    Raises:
        Corrupt: the state before is another run's, or something is cut short.
        StoreError: a file could not be read or written.
    """
    known = StoredRows.open(before, layout).windows if before else {}
    names = sorted({*known, *updates})
    with hashed_file(out) as file:
        file.write(rows_header(names, layout))
        for name in names:
            addends = [window for window in (known.get(name), _window(updates.get(name))) if window]
            _write_sum(file, addends, layout.num_trainable)
    return file.written


def _window(update: UpdateFile | None) -> Window | None:
    return None if update is None else Window(update.path)


def _write_sum(file: HashedFile, addends: list[Window], num_values: int) -> None:
    room = np.empty(min(COPIED_VALUES, num_values), np.float32)
    for start in range(0, num_values, COPIED_VALUES):
        size = min(COPIED_VALUES, num_values - start)
        sum_C = np.zeros(size)
        for window in addends:
            read_exactly(window.path, window.offset_bytes + FLOAT_BYTES * start, room[:size].data.cast("B"))
            sum_C += room[:size]
        file.write(sum_C.astype("<f4").data)
