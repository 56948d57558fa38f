"""Models at rest: a safetensors file whose groups of tensors are contiguous windows.

Any safetensors reader opens the file. Because ``Layout`` orders tensors by role and this module
writes them in that order, the trainable vector, the buffers and the counters can be read and
written in blocks, without holding a model in memory.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from .errors import ConfigError, Corrupt, LayoutMismatch
from .files import replacing, sha256_file
from .layout import Layout, Role, TensorSpec, first_not_finite

MAX_HEADER_BYTES = 64 << 20
LAYOUT_KEY = "foedus.layout"

_CODES = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "bool": "BOOL",
}
_WIDTHS = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "U8": 1, "BOOL": 1}


def stored_dtype(tensor: TensorSpec) -> str:
    """The dtype in which the file holds a tensor: float32, int64, or a frozen tensor's own."""
    if tensor.role is Role.FROZEN:
        return tensor.dtype
    return "int64" if tensor.role is Role.COUNTER else "float32"


def stored_bytes(tensor: TensorSpec) -> int:
    """How many bytes the file spends on a tensor."""
    return tensor.size * _WIDTHS[_CODES[stored_dtype(tensor)]]


def header(layout: Layout) -> bytes:
    """The file's first bytes: length and JSON, padded so that the data starts on a multiple of 8."""
    table: dict[str, Any] = {"__metadata__": {LAYOUT_KEY: layout.to_json(), "format": "pt"}}
    offset = 0
    for tensor in layout.tensors:
        end = offset + stored_bytes(tensor)
        table[tensor.name] = {
            "dtype": _CODES[stored_dtype(tensor)],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def model_bytes(layout: Layout) -> int:
    """The exact size of a model file with this layout."""
    return len(header(layout)) + sum(stored_bytes(tensor) for tensor in layout.tensors)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model in memory.

    Attributes:
        layout: its tensors.
        trainable_D: float32, the values the optimizers move.
        buffers_B: float32, floating buffers.
        counters_C: int64, integer counters.
        frozen: raw little-endian bytes of each frozen tensor in its own dtype, by name.
    """

    layout: Layout
    trainable_D: npt.NDArray[np.float32]
    buffers_B: npt.NDArray[np.float32]
    counters_C: npt.NDArray[np.int64]
    frozen: Mapping[str, bytes]

    @staticmethod
    def of(layout: Layout, arrays: Mapping[str, npt.ArrayLike], frozen: Mapping[str, bytes] | None = None) -> Model:
        """Build a model from named arrays, copied; frozen tensors may come as raw bytes instead.

        Raises:
            LayoutMismatch: a tensor is missing or has another shape.
        """
        raw = dict(frozen or {})
        for tensor in layout.of(Role.FROZEN):
            if tensor.name not in raw:
                raw[tensor.name] = np.ascontiguousarray(arrays[tensor.name], dtype=tensor.dtype).tobytes()
            if len(raw[tensor.name]) != stored_bytes(tensor):
                raise LayoutMismatch(
                    f"frozen tensor {tensor.name!r} has {len(raw[tensor.name])} bytes, expected {stored_bytes(tensor)}"
                )
        return Model(
            layout,
            layout.flatten(arrays, Role.TRAINABLE),
            layout.flatten(arrays, Role.BUFFER),
            layout.flatten(arrays, Role.COUNTER),
            raw,
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Views of the trainable tensors, buffers and counters by name (not the frozen ones)."""
        return {
            **self.layout.unflatten(self.trainable_D, Role.TRAINABLE),
            **self.layout.unflatten(self.buffers_B, Role.BUFFER),
            **self.layout.unflatten(self.counters_C, Role.COUNTER),
        }


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file, opened lazily, read by window.

    ``data_offset`` is where the first tensor starts in the file.
    """

    path: Path
    layout: Layout
    data_offset: int

    @staticmethod
    def open(path: Path) -> ModelFile:
        """Read and check the header.

        A safetensors file that foedus did not write is accepted when every tensor is float32 or
        int64, floats first: floats are then trainable, integers counters, in the file's order.

        Raises:
            ConfigError: the file is missing or is no safetensors file with a usable layout.
        """
        try:
            with path.open("rb") as file:
                table, data_offset = _read_table(file, path)
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            raise ConfigError(f"there is no model file {path}") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        layout = _layout_in(table, path)
        if data_offset + sum(stored_bytes(t) for t in layout.tensors) != size:
            raise ConfigError(f"{path} is truncated or has trailing bytes ({size} bytes)")
        return ModelFile(path, layout, data_offset)

    def window(self, role: Role) -> tuple[int, int]:
        """Offset and length in bytes of a role's tensors in the file."""
        start = self.data_offset
        for tensor in self.layout.tensors:
            if tensor.role is role:
                break
            start += stored_bytes(tensor)
        return start, sum(stored_bytes(tensor) for tensor in self.layout.of(role))

    def vector(self, role: Role) -> npt.NDArray[Any]:
        """A role's values as one vector in memory: float32, or int64 for counters."""
        dtype = np.dtype(np.int64 if role is Role.COUNTER else np.float32)
        start, length = self.window(role)
        flat = np.fromfile(self.path, dtype, length // dtype.itemsize, offset=start)
        if flat.nbytes != length:
            raise Corrupt(f"{self.path} is shorter than its header says")
        return flat

    def frozen_bytes(self) -> Iterator[bytes]:
        """The frozen tensors' bytes, in blocks."""
        start, remaining = self.window(Role.FROZEN)
        with self.path.open("rb") as file:
            file.seek(start)
            while remaining:
                block = file.read(min(1 << 20, remaining))
                if not block:
                    raise Corrupt(f"{self.path} is shorter than its header says")
                remaining -= len(block)
                yield block

    def read(self) -> Model:
        """The whole model in memory."""
        start, _ = self.window(Role.FROZEN)
        frozen: dict[str, bytes] = {}
        with self.path.open("rb") as file:
            file.seek(start)
            for tensor in self.layout.of(Role.FROZEN):
                frozen[tensor.name] = file.read(stored_bytes(tensor))
        return Model(
            self.layout, self.vector(Role.TRAINABLE), self.vector(Role.BUFFER), self.vector(Role.COUNTER), frozen
        )

    def require_finite(self) -> None:
        """Raise ConfigError, naming the tensor, if a trainable value or buffer is NaN or infinite."""
        for role in (Role.TRAINABLE, Role.BUFFER):
            for name, values in self.layout.unflatten(self.vector(role), role).items():
                if first_not_finite(values) is not None:
                    raise ConfigError(f"{self.path} holds a value that is not finite in tensor {name!r}")

    def digest(self) -> str:
        """The hex SHA-256 of the whole file: the model's name everywhere."""
        return sha256_file(self.path)


def write_model(path: Path, model: Model) -> ModelFile:
    """Write a model file.

    Raises:
        StoreError: the file could not be written; nothing is left behind.
    """
    top = header(model.layout)
    with replacing(path) as file:
        file.write(top)
        for vector in (model.trainable_D, model.buffers_B, model.counters_C):
            vector.tofile(file)
        for tensor in model.layout.of(Role.FROZEN):
            file.write(model.frozen[tensor.name])
    return ModelFile(path, model.layout, len(top))


def _read_table(file: BinaryIO, path: Path) -> tuple[dict[str, Any], int]:
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise ConfigError(f"{path} is not a safetensors file")
    text = file.read(length)
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} is not a safetensors file: its header is not JSON") from None
    if len(text) != length or not isinstance(table, dict):
        raise ConfigError(f"{path} is not a safetensors file: its header is cut off")
    return table, 8 + length


def _layout_in(table: dict[str, Any], path: Path) -> Layout:
    metadata = table.pop("__metadata__", {})
    if isinstance(metadata, dict) and LAYOUT_KEY in metadata:
        layout = Layout.from_json(str(metadata[LAYOUT_KEY]))
    else:
        try:
            rows = sorted(table.items(), key=lambda item: item[1]["data_offsets"])
            layout = Layout(tuple(_foreign_tensor(name, row, path) for name, row in rows))
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            raise ConfigError(f"{path} is not a safetensors file: its table is malformed") from None
    expected = json.loads(header(layout)[8:])
    del expected["__metadata__"]
    if expected != table:
        raise ConfigError(
            f"{path} holds its tensors in another order, shape or dtype than foedus stores them in",
            hint="write the initial model with 'foedus task init TASK FILE'",
        )
    return layout


def _foreign_tensor(name: str, row: dict[str, Any], path: Path) -> TensorSpec:
    kind = {"F32": ("float32", Role.TRAINABLE), "I64": ("int64", Role.COUNTER)}.get(row["dtype"])
    if kind is None:
        raise ConfigError(
            f"{path} holds tensor {name!r} as {row['dtype']}; an initial model holds F32 and I64",
            hint="write the initial model with 'foedus task init TASK FILE'",
        )
    return TensorSpec(name, tuple(int(n) for n in row["shape"]), *kind)
