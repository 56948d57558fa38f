"""The ordered tensors of a model, and how they become one flat vector.

Shape suffixes: D trainable values, B floating buffer values, C integer counters.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ConfigError, LayoutMismatch

MAX_TENSORS = 100_000
MAX_NAME_LENGTH = 512
MAX_VALUES = 1 << 40
RESERVED_NAME = "__metadata__"  # safetensors keeps it for itself

FLOAT_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGER_DTYPES = frozenset({"int8", "int16", "int32", "int64", "uint8", "bool"})


class Role(StrEnum):
    """What a tensor is to the federation."""

    TRAINABLE = "trainable"  # moved by the optimizers, travels as a difference
    BUFFER = "buffer"  # floating state such as running means: averaged, never optimized
    COUNTER = "counter"  # integer state such as num_batches_tracked: takes the maximum
    FROZEN = "frozen"  # part of the model file, never trained, never sent back


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: its name in the model, its shape, the dtype the task holds it in, its role."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The ordered tensors of a model; its digest pins the model on every side.

    Trainable tensors come first, in the model's own order, then buffers, counters, frozen
    tensors, so that each group is one contiguous window of the model file. Trainable values
    and buffers travel as float32, counters as int64, whatever dtype the task holds them in.

    Raises:
        ConfigError: a name repeats, a shape is negative, a dtype does not suit its role.
    """

    tensors: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tuple(sorted(self.tensors, key=_role_order)))
        if len(self.tensors) > MAX_TENSORS:
            raise ConfigError(f"the model has {len(self.tensors)} tensors, more than {MAX_TENSORS}")
        seen: set[str] = set()
        for tensor in self.tensors:
            _check(tensor)
            if tensor.name in seen:
                raise ConfigError(f"the model names the tensor {tensor.name!r} twice")
            seen.add(tensor.name)
        if sum(tensor.size for tensor in self.tensors) > MAX_VALUES:
            raise ConfigError(f"the model has more than {MAX_VALUES} values")
        if not self.num_trainable:
            raise ConfigError("the model has no trainable tensor", hint="mark at least one as trainable")

    def of(self, role: Role) -> tuple[TensorSpec, ...]:
        """The tensors of one role, in order."""
        return tuple(tensor for tensor in self.tensors if tensor.role is role)

    def count(self, role: Role) -> int:
        """How many values the tensors of one role hold together."""
        return sum(tensor.size for tensor in self.of(role))

    @cached_property
    def num_trainable(self) -> int:
        """D, the length of an update."""
        return self.count(Role.TRAINABLE)

    @cached_property
    def num_buffers(self) -> int:
        """B, the floating buffer values."""
        return self.count(Role.BUFFER)

    @cached_property
    def num_counters(self) -> int:
        """C, the integer counters."""
        return self.count(Role.COUNTER)

    @property
    def update_bytes(self) -> int:
        """Exact size of one update on the wire: D and B as float32, C as int64."""
        return 4 * (self.num_trainable + self.num_buffers) + 8 * self.num_counters

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the tensors."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Canonical text: a list of [name, shape, dtype, role] in order."""
        rows = [[t.name, list(t.shape), t.dtype, t.role.value] for t in self.tensors]
        return json.dumps(rows, separators=(",", ":"), ensure_ascii=True)

    @staticmethod
    def from_json(text: str) -> Layout:
        """Read what ``to_json`` wrote.

        Raises:
            ConfigError: the text is not a layout.
        """
        try:
            rows = json.loads(text)
            tensors = tuple(
                TensorSpec(str(name), tuple(int(n) for n in shape), str(dtype), Role(role))
                for name, shape, dtype, role in rows
            )
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ConfigError(f"this is not a model layout: {error}") from None
        return Layout(tensors)

    def require(self, other: Layout, whose: str) -> None:
        """Raise LayoutMismatch, naming the first tensor that differs, unless both are equal."""
        if self.digest == other.digest:
            return
        mine = {tensor.name: tensor for tensor in self.tensors}
        theirs = {tensor.name: tensor for tensor in other.tensors}
        for name in [*mine, *theirs]:
            ours, got = mine.get(name), theirs.get(name)
            if ours != got:
                raise LayoutMismatch(
                    f"{whose} differs from the run's model at tensor {name!r}: "
                    f"{_describe(got)} instead of {_describe(ours)}",
                    hint="train with the code that made the initial model, or submit a new run",
                )
        raise LayoutMismatch(f"{whose} orders its tensors differently from the run's model")

    def flatten(self, arrays: Mapping[str, npt.ArrayLike], role: Role) -> npt.NDArray[Any]:
        """The tensors of ``role`` as one vector: float32, or int64 for counters.

        Raises:
            LayoutMismatch: a tensor is missing or has another shape.
        """
        dtype = np.int64 if role is Role.COUNTER else np.float32
        flat = np.empty(self.count(role), dtype)
        offset = 0
        for tensor in self.of(role):
            if tensor.name not in arrays:
                raise LayoutMismatch(f"tensor {tensor.name!r} is missing")
            value = np.asarray(arrays[tensor.name])
            if value.shape != tensor.shape:
                raise LayoutMismatch(f"tensor {tensor.name!r} has shape {value.shape}, expected {tensor.shape}")
            flat[offset : offset + tensor.size] = value.reshape(-1)
            offset += tensor.size
        return flat

    def unflatten(self, flat: npt.NDArray[Any], role: Role) -> dict[str, npt.NDArray[Any]]:
        """Views into ``flat`` by tensor name, the reverse of ``flatten``.

        Raises:
            LayoutMismatch: the vector has another length.
        """
        if flat.shape != (self.count(role),):
            raise LayoutMismatch(f"the {role} vector has shape {flat.shape}, expected ({self.count(role)},)")
        views: dict[str, npt.NDArray[Any]] = {}
        offset = 0
        for tensor in self.of(role):
            views[tensor.name] = flat[offset : offset + tensor.size].reshape(tensor.shape)
            offset += tensor.size
        return views


def layout_of(arrays: Mapping[str, npt.NDArray[Any]], roles: Mapping[str, Role] | None = None) -> Layout:
    """The layout of named arrays: floats are trainable, integers counters, unless ``roles`` says else."""
    roles = roles or {}
    return Layout(tuple(_spec(name, array, roles.get(name)) for name, array in arrays.items()))


def first_not_finite(values: npt.NDArray[Any]) -> int | None:
    """The index of the first NaN or infinity in a vector of floats, or None."""
    # No sum with a NaN or an infinity in it is finite, and a sum is quicker than a mask.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return None
    bad = np.flatnonzero(~np.isfinite(values))
    return int(bad[0]) if bad.size else None


def names(tensors: Iterable[TensorSpec]) -> tuple[str, ...]:
    """The names of some tensors, in order."""
    return tuple(tensor.name for tensor in tensors)


def _spec(name: str, array: npt.NDArray[Any], role: Role | None) -> TensorSpec:
    dtype = str(array.dtype)
    if role is None:
        role = Role.TRAINABLE if dtype in FLOAT_DTYPES else Role.COUNTER
    return TensorSpec(name, tuple(array.shape), dtype, role)


def _role_order(tensor: TensorSpec) -> int:
    return list(Role).index(tensor.role)


def _check(tensor: TensorSpec) -> None:
    name = tensor.name
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable() or name == RESERVED_NAME:
        raise ConfigError(f"a tensor has the name {name[:80]!r}, which cannot be used")
    if any(n < 0 for n in tensor.shape) or len(tensor.shape) > 32:
        raise ConfigError(f"tensor {tensor.name!r} has the impossible shape {tensor.shape}")
    allowed = {
        Role.TRAINABLE: FLOAT_DTYPES,
        Role.BUFFER: FLOAT_DTYPES,
        Role.COUNTER: INTEGER_DTYPES,
        Role.FROZEN: FLOAT_DTYPES | INTEGER_DTYPES,
    }[tensor.role]
    if tensor.dtype not in allowed:
        raise ConfigError(
            f"tensor {tensor.name!r} has dtype {tensor.dtype}, which cannot be {tensor.role}",
            hint=f"use one of {', '.join(sorted(allowed))}",
        )


def _describe(tensor: TensorSpec | None) -> str:
    if tensor is None:
        return "absent"
    return f"{tensor.role} {tensor.dtype}{list(tensor.shape)}"
