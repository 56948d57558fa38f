"""From a round's updates to the next model file, in one pass over blocks of coordinates.

Shape suffixes: N updates, D trainable values, B floating buffer values, C the columns of a block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from ..aggregators.engine import block_columns, combine, combine_then
from ..aggregators.mean import Mean
from ..aggregators.rows import FLOAT_BYTES, FileRows
from ..errors import RoundFailed
from ..files import read_exactly, replacing
from ..layout import Layout, Role, first_not_finite
from ..modelfile import ModelFile, header
from ..plan import AggregatorPlan
from .optimizer_state import FreshState, StoredState, interleaved, state_header
from .optimizers import Block, ServerOptimizer, States
from .update_file import UpdateFile, float_tensor_at

COUNTER_BYTES = 8


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is complete, and the hex SHA-256 of its content."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Step:
    """What one round left behind: the new model, and the optimizer's state if it keeps one."""

    model: WrittenFile
    state: WrittenFile | None


def rule_for(plan: AggregatorPlan) -> Mean:
    """The aggregation rule a plan asks for."""
    return Mean(plan.weighting, plan.max_examples)


def step_model(
    model: ModelFile,
    updates: Sequence[UpdateFile],
    weights_N: npt.NDArray[np.float64],
    optimizer: ServerOptimizer,
    state: Path | None,
    *,
    out: Path,
    state_out: Path,
    buffers: Literal["average", "local"] = "average",
    block: int | None = None,
) -> Step:
    """Write the model of the next version; the one given stays as it is.

    The trainable values go through the optimizer. Floating buffers never do: they become the
    weighted mean of the sites' buffers, or stay as received when ``buffers`` is "local". A
    counter becomes the largest among the updates of positive weight and the model itself;
    frozen tensors are copied. The files are the same byte for byte whatever ``block`` is, and
    memory is O(N * block), however large the model.

    Args:
        model: the model the updates started from.
        updates: N updates to it, in a fixed order such as by site name.
        weights_N: what each weighs: float64, not negative, summing to 1.
        optimizer: the server optimizer.
        state: its state after the round before; None in the first round.
        out: where the new model appears, whole or not at all.
        state_out: where the new state appears, if the optimizer keeps one; another path than ``state``.
        buffers: what becomes of floating buffers.
        block: C; None chooses by N.

    Raises:
        RoundFailed: a value of the new model or state is not finite; nothing is written.
        Corrupt: an update, the model or the state is cut short or another run's; nothing is written.
        StoreError: a file could not be read or written.
    """
    _require_means(weights_N, len(updates))
    columns = block or block_columns(len(updates))
    with ExitStack() as files:
        model_file = files.enter_context(_hashed(out))
        state_file = files.enter_context(_hashed(state_out)) if optimizer.initial_states else None
        model_file.write(header(model.layout))
        if state_file:
            state_file.write(state_header(optimizer, model.layout))
        before = StoredState.open(state, optimizer, model.layout) if state else FreshState(optimizer.initial_states)
        _write_trainable(model, updates, weights_N, optimizer, before, model_file, state_file, columns)
        _write_buffers(model, updates, weights_N, buffers, model_file, columns)
        _write_counters(model, updates, weights_N, model_file, columns)
        for raw in model.frozen_bytes():
            model_file.write(raw)
    return Step(model_file.written, state_file.written if state_file else None)


@dataclass(frozen=True, slots=True)
class _HashedFile:
    path: Path
    file: BinaryIO
    hash: Any = field(default_factory=hashlib.sha256)

    def write(self, data: bytes | memoryview) -> None:
        self.hash.update(data)
        self.file.write(data)

    @property
    def written(self) -> WrittenFile:
        return WrittenFile(self.path, self.hash.hexdigest())


@contextmanager
def _hashed(path: Path) -> Iterator[_HashedFile]:
    with replacing(path) as file:
        yield _HashedFile(path, file)


def _write_trainable(
    model: ModelFile,
    updates: Sequence[UpdateFile],
    weights_N: npt.NDArray[np.float64],
    optimizer: ServerOptimizer,
    before: FreshState | StoredState,
    model_file: _HashedFile,
    state_file: _HashedFile | None,
    columns: int,
) -> None:
    layout = model.layout
    offset, _ = model.window(Role.TRAINABLE)
    rows = FileRows(tuple(update.path for update in updates), 0, layout.num_trainable)

    def step(start: int, mean_C: Block) -> tuple[Block, States]:
        _require_finite(mean_C, layout, start, "the mean update")
        params_C = np.empty(mean_C.size, np.float32)
        read_exactly(model.path, offset + FLOAT_BYTES * start, params_C.data.cast("B"))
        new_params_C, states = optimizer.step(params_C, mean_C, before.read(start, start + mean_C.size))
        _require_finite(new_params_C, layout, start, "the new model")
        for state_C in states:
            _require_finite(state_C, layout, start, f"the {optimizer.name} state")
        return new_params_C, states

    for new_params_C, states in combine_then(step, rows, weights_N, columns):
        model_file.write(new_params_C.data)
        if state_file:
            state_file.write(interleaved(states).data)


def _write_buffers(
    model: ModelFile,
    updates: Sequence[UpdateFile],
    weights_N: npt.NDArray[np.float64],
    buffers: Literal["average", "local"],
    model_file: _HashedFile,
    columns: int,
) -> None:
    layout = model.layout
    if buffers == "local":
        offset, _ = model.window(Role.BUFFER)
        rows, weights_N = FileRows((model.path,), offset, layout.num_buffers), np.ones(1)
    else:
        paths = tuple(update.path for update in updates)
        rows = FileRows(paths, updates[0].buffers_offset, layout.num_buffers)
    for start, mean_C in combine(rows, weights_N, columns):
        _require_finite(mean_C, layout, layout.num_trainable + start, "the mean of the buffers")
        model_file.write(mean_C.data)


def _write_counters(
    model: ModelFile,
    updates: Sequence[UpdateFile],
    weights_N: npt.NDArray[np.float64],
    model_file: _HashedFile,
    columns: int,
) -> None:
    offset, _ = model.window(Role.COUNTER)
    sources = [(model.path, offset)]
    sources += [
        (update.path, update.counters_offset) for update, weight in zip(updates, weights_N, strict=True) if weight > 0
    ]
    for start in range(0, model.layout.num_counters, columns):
        size = min(columns, model.layout.num_counters - start)
        largest, values = np.full(size, np.iinfo(np.int64).min), np.empty(size, np.int64)
        for path, first in sources:
            read_exactly(path, first + COUNTER_BYTES * start, values.data.cast("B"))
            np.maximum(largest, values, out=largest)
        model_file.write(largest.data)


def _require_means(weights_N: npt.NDArray[np.float64], num_updates: int) -> None:
    # A mean of variances is a variance only under weights of a mean.
    if weights_N.shape != (num_updates,) or (weights_N < 0).any() or not abs(weights_N.sum() - 1) < 1e-9:
        raise ValueError(f"{num_updates} updates need as many weights, none negative, summing to 1: {weights_N}")


def _require_finite(values_C: npt.NDArray[np.float32], layout: Layout, start: int, what: str) -> None:
    bad = first_not_finite(values_C)
    if bad is not None:
        tensor = float_tensor_at(layout, start + bad)
        raise RoundFailed(
            f"{what} holds {values_C[bad]} in tensor {tensor.name!r}; the model stays as it was",
            hint="lower the learning rate of the sites or of the server optimizer",
        )
