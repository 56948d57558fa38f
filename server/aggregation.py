"""From a round's updates to the next model file: what the rule decides, in one pass over blocks of coordinates.

Shape suffixes: N updates, M mixed rows, D trainable values, B floating buffer values, C the columns of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..aggregators import rule
from ..aggregators.aggregator import Aggregator
from ..aggregators.decision import Combination, Coordinatewise, WeightedSum
from ..aggregators.engine import block_columns, combine, combine_then
from ..aggregators.ray_workers import RayWorkers
from ..aggregators.rows import FLOAT_BYTES, MappedRows, Rows, Window, stacked
from ..aggregators.workers import Threads, Workers
from ..errors import RoundFailed
from ..files import read_exactly
from ..layout import Layout, Role, first_not_finite
from ..modelfile import ModelFile, header
from ..plan import AggregatorPlan
from .aggregator_state import LAST_AGGREGATE, rows_header
from .config import Aggregation
from .hashed_file import WrittenFile, hashed_file
from .optimizer_state import FreshState, StoredState, interleaved, state_header
from .optimizers import Block, ServerOptimizer, States
from .update_file import UpdateFile, float_tensor_at

COUNTER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Step:
    """What one round left behind: the new model, and the states of what keeps one.

    ``aggregator_state`` is what the rule carries on, such as the combined update.
    """

    model: WrittenFile
    state: WrittenFile | None
    aggregator_state: WrittenFile | None = None


def aggregator_for(plan: AggregatorPlan) -> Aggregator:
    """The rule a plan asks for, ready for use.

    Raises:
        ConfigError: there is no such rule, or it does not take what the plan gives it.
    """
    own = plan.model_dump(include={"f", "m", "iterations", "clip", "selections", "coordinates"}, exclude_none=True)
    return rule(
        plan.name,
        weighting=plan.weighting,
        max_examples=plan.max_examples,
        pre=plan.pre,
        buckets=plan.buckets,
        clip_norm=plan.clip_norm,
        reject_norm=plan.reject_norm,
        **own,
        **plan.parameters,
    )


def workers_for(config: Aggregation) -> Workers:
    """Who computes the blocks, by the server's settings."""
    return RayWorkers(config.ray_address) if config.engine == "ray" else Threads(config.threads)


def trainable_rows(updates: Sequence[UpdateFile]) -> MappedRows:
    """The differences of N updates as rows."""
    return MappedRows(tuple(Window(update.path) for update in updates), updates[0].layout.num_trainable)


def step_model(
    model: ModelFile,
    updates: Sequence[UpdateFile],
    combination: Combination,
    optimizer: ServerOptimizer,
    state: Path | None,
    *,
    out: Path,
    state_out: Path,
    reference: Rows | None = None,
    aggregate_out: Path | None = None,
    beside: Combination | None = None,
    buffers: Literal["average", "local"] = "average",
    block: int | None = None,
    workers: Workers | None = None,
) -> Step:
    """Write the model of the next version; the one given stays as it is.

    The trainable values go through the optimizer. Floating buffers never do: they are combined
    as ``beside`` says, by weights that make a mean, or stay as received when ``buffers`` is
    "local" or no update weighs anything. A counter becomes the largest among the updates that
    weigh something and the model itself; where ``beside`` goes by the coordinate the median (of two,
    the lower) takes the place of the largest, which a single liar could choose. Frozen tensors are copied.
    The files are the same byte for byte whatever ``block`` is, and memory is O(N * block),
    however large the model.

    Args:
        model: the model the updates started from.
        updates: N updates to it, in a fixed order such as by site name.
        combination: what the rule decided to make of them.
        optimizer: the server optimizer.
        state: its state after the round before; None in the first round.
        out: where the new model appears, whole or not at all.
        state_out: where the new state appears, if the optimizer keeps one; another path than ``state``.
        reference: the rows that the rule wanted beside the updates.
        aggregate_out: where the combined update appears; None for a rule that has no use for it.
        beside: what to make of buffers and counters; None for what is made of the updates.
        buffers: what becomes of floating buffers.
        block: C; None chooses by N.
        workers: who computes the blocks; None for threads of this process.

    Raises:
        RoundFailed: a value of the new model or state is not finite; nothing is written.
        Corrupt: an update, the model or the state is cut short or another run's; nothing is written.
        StoreError: a file could not be read or written.
    """
    columns = block or block_columns(len(updates))
    workers, beside = workers or Threads(), beside or combination
    with ExitStack() as files:
        model_file = files.enter_context(hashed_file(out))
        state_file = files.enter_context(hashed_file(state_out)) if optimizer.initial_states else None
        aggregate_file = files.enter_context(hashed_file(aggregate_out)) if aggregate_out else None
        model_file.write(header(model.layout))
        if aggregate_file:
            aggregate_file.write(rows_header([LAST_AGGREGATE], model.layout))
        if state_file:
            state_file.write(state_header(optimizer, model.layout))
        before = StoredState.open(state, optimizer, model.layout) if state else FreshState(optimizer.initial_states)
        rows: Rows = trainable_rows(updates)
        if isinstance(combination, WeightedSum) and combination.weights_N.size > len(updates) and reference is not None:
            rows = stacked(rows, reference)
        for block_C in _trainable(model, rows, combination, optimizer, before, columns, workers):
            model_file.write(block_C.params_C.data)
            if state_file:
                state_file.write(interleaved(block_C.states).data)
            if aggregate_file:
                aggregate_file.write(block_C.aggregate_C.data)
        for buffers_C in _buffers(model, updates, beside if buffers == "average" else None, columns, workers):
            model_file.write(buffers_C.data)
        for counters_C in _counters(model, updates, beside, columns):
            model_file.write(counters_C.data)
        for raw in model.frozen_bytes():
            model_file.write(raw)
    return Step(
        model_file.written,
        state_file.written if state_file else None,
        aggregate_file.written if aggregate_file else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """One block of the new model."""

    params_C: Block
    states: States
    aggregate_C: Block


def _trainable(
    model: ModelFile,
    rows: Rows,
    combination: Combination,
    optimizer: ServerOptimizer,
    before: FreshState | StoredState,
    columns: int,
    workers: Workers,
) -> Iterator[_Block]:
    layout = model.layout
    offset, _ = model.window(Role.TRAINABLE)

    def step(start: int, aggregate_C: Block) -> _Block:
        _require_finite(aggregate_C, layout, start, "the combined update")
        params_C = np.empty(aggregate_C.size, np.float32)
        read_exactly(model.path, offset + FLOAT_BYTES * start, params_C.data.cast("B"))
        new_params_C, states = optimizer.step(params_C, aggregate_C, before.read(start, start + aggregate_C.size))
        _require_finite(new_params_C, layout, start, "the new model")
        for state_C in states:
            _require_finite(state_C, layout, start, f"the {optimizer.name} state")
        return _Block(new_params_C, states, aggregate_C)

    return combine_then(step, rows, combination, block=columns, workers=workers)


def _buffers(
    model: ModelFile,
    updates: Sequence[UpdateFile],
    combination: Combination | None,
    columns: int,
    workers: Workers,
) -> Iterator[Block]:
    layout = model.layout
    mean = combination and _as_mean(combination, len(updates))
    if mean is None:
        offset, _ = model.window(Role.BUFFER)
        windows, mean = [Window(model.path, offset)], WeightedSum(np.ones(1))
    else:
        windows = [Window(update.path, update.buffers_offset) for update in updates]
    for start, mean_C in combine(MappedRows(tuple(windows), layout.num_buffers), mean, block=columns, workers=workers):
        _require_finite(mean_C, layout, layout.num_trainable + start, "the mean of the buffers")
        yield mean_C


def _as_mean(combination: Combination, num_updates: int) -> Combination | None:
    """The combination with weights that sum to 1, since a mean of variances is a variance only under
    such weights; None where no update weighs anything."""
    match combination:
        case WeightedSum(weights):
            weights_N = weights[:num_updates]
            if (weights_N < 0).any():
                raise ValueError(f"a rule gave negative weights: {weights_N}")
            total = weights_N.sum()
            return WeightedSum(weights_N / total) if total > 0 else None
        case Coordinatewise():
            mix_MN = combination.mix_MN
            return combination if mix_MN is None else replace(combination, mix_MN=mix_MN / mix_MN.sum(1, keepdims=True))


def _counters(
    model: ModelFile, updates: Sequence[UpdateFile], combination: Combination, columns: int
) -> Iterator[npt.NDArray[np.int64]]:
    used = [index for index in combination.used if index < len(updates)]
    offset, _ = model.window(Role.COUNTER)
    for start in range(0, model.layout.num_counters, columns):
        size = min(columns, model.layout.num_counters - start)
        counters_C, values_UC = np.empty(size, np.int64), np.empty((len(used), size), np.int64)
        read_exactly(model.path, offset + COUNTER_BYTES * start, counters_C.data.cast("B"))
        for index, values_C in zip(used, values_UC, strict=True):
            read_exactly(
                updates[index].path, updates[index].counters_offset + COUNTER_BYTES * start, values_C.data.cast("B")
            )
        if isinstance(combination, Coordinatewise):
            values_UC.sort(axis=0)
            values_UC = values_UC[(len(used) - 1) // 2 : (len(used) + 1) // 2]
        yield np.maximum(counters_C, values_UC.max(axis=0)) if len(values_UC) else counters_C


def _require_finite(values_C: npt.NDArray[np.float32], layout: Layout, start: int, what: str) -> None:
    bad = first_not_finite(values_C)
    if bad is not None:
        tensor = float_tensor_at(layout, start + bad)
        raise RoundFailed(
            f"{what} holds {values_C[bad]} in tensor {tensor.name!r}; the model stays as it was",
            hint="lower the learning rate of the sites or of the server optimizer",
        )
