"""The step from updates to the next model, against the same arithmetic done whole in memory."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from foedus.aggregators import rule
from foedus.aggregators.decision import Closest, Coordinatewise, Middle, WeightedSum
from foedus.errors import Corrupt, RoundFailed
from foedus.layout import Layout, Role, TensorSpec
from foedus.modelfile import Model, ModelFile, write_model
from foedus.plan import AggregatorPlan
from foedus.server.aggregation import Step, aggregator_for, step_model, trainable_rows
from foedus.server.aggregator_state import LAST_AGGREGATE, StoredRows
from foedus.server.optimizers import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi, ServerOptimizer
from foedus.server.update_file import UpdateFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LAYOUT = Layout(
    (
        TensorSpec("conv", (5, 7), "float32", Role.TRAINABLE),
        TensorSpec("bn.mean", (7,), "float32", Role.BUFFER),
        TensorSpec("bn.var", (7,), "float32", Role.BUFFER),
        TensorSpec("bn.count", (), "int64", Role.COUNTER),
        TensorSpec("seen", (3,), "int64", Role.COUNTER),
        TensorSpec("head", (11,), "float32", Role.TRAINABLE),
        TensorSpec("table", (6,), "uint8", Role.FROZEN),
    )
)
D, B, C = 46, 14, 4
COUNTS = [30, 10, 60]
OPTIMIZERS: list[ServerOptimizer] = [FedAvg(), FedAvgM(), FedAdam(), FedYogi(), FedAdagrad()]
NAMES = [optimizer.name for optimizer in OPTIMIZERS]


def _model(folder: Path, seed: int = 0) -> ModelFile:
    rng = np.random.default_rng(seed)
    return write_model(
        folder / "received.safetensors",
        Model(
            LAYOUT,
            rng.standard_normal(D).astype(np.float32),
            rng.uniform(0.1, 2, B).astype(np.float32),
            np.array([5, 100, 0, -3]),
            {"table": b"frozen"},
        ),
    )


def _updates(folder: Path, seed: int = 1, n: int = 3) -> list[UpdateFile]:
    rng, updates = np.random.default_rng(seed), []
    for index in range(n):
        path = folder / f"update-{seed}-{index}"
        floats = np.concatenate([rng.standard_normal(D) / 10, rng.uniform(1e-6, 3, B)]).astype("<f4")
        path.write_bytes(floats.tobytes() + rng.integers(0, 200, C, np.int64).tobytes())
        updates.append(UpdateFile.open(path, LAYOUT))
    return updates


def _floats(updates: list[UpdateFile]) -> np.ndarray:
    return np.array([np.fromfile(update.path, "<f4", D + B) for update in updates]).astype(np.float64)


def _counters(updates: list[UpdateFile]) -> np.ndarray:
    return np.array([np.fromfile(update.path, "<i8", C, offset=4 * (D + B)) for update in updates])


def _step(folder: Path, optimizer: ServerOptimizer, name: str = "next", **changes: object) -> Step:
    arguments: dict[str, object] = {
        "state": None,
        "combination": WeightedSum(np.array(COUNTS) / sum(COUNTS)),
        "out": folder / f"{name}.safetensors",
        "state_out": folder / f"{name}.state",
    }
    arguments.update(changes)
    model = arguments.pop("model", None) or _model(folder)
    updates = arguments.pop("updates", None) or _updates(folder)
    return step_model(model, updates, optimizer=optimizer, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=NAMES)
def test_rounds_on_disk_equal_rounds_in_memory(tmp_path: Path, optimizer: ServerOptimizer) -> None:
    model, state = _model(tmp_path), None
    expected_D = model.read().trainable_D
    states = tuple(np.full(D, value, np.float32) for value in optimizer.initial_states)
    for number in range(1, 5):
        updates = _updates(tmp_path, seed=number)
        mean_D = (np.array(COUNTS) / 100 @ _floats(updates)[:, :D]).astype(np.float32)
        expected_D, states = optimizer.step(expected_D, mean_D, states)
        step = _step(tmp_path, optimizer, str(number), model=model, updates=updates, state=state, block=13)
        model, state = ModelFile.open(step.model.path), step.state.path if step.state else None
        np.testing.assert_allclose(model.read().trainable_D, expected_D, rtol=0, atol=1e-5)
    assert (state is None) == (optimizer.initial_states == ())


@pytest.mark.parametrize("optimizer", [FedAdam(), FedAvgM()], ids=["fedadam", "fedavgm"])
def test_buffers_are_the_weighted_mean_and_never_optimized(tmp_path: Path, optimizer: ServerOptimizer) -> None:
    model, state = _model(tmp_path), None
    for number in range(1, 6):
        updates = _updates(tmp_path, seed=number)
        step = _step(tmp_path, optimizer, str(number), model=model, updates=updates, state=state)
        model, state = ModelFile.open(step.model.path), step.state and step.state.path
        buffers_B = model.read().buffers_B
        np.testing.assert_allclose(buffers_B, np.array(COUNTS) / 100 @ _floats(updates)[:, D:], rtol=1e-7)
        assert (buffers_B > 0).all()


def test_local_buffers_stay_as_received(tmp_path: Path) -> None:
    step = _step(tmp_path, FedAvg(), buffers="local")
    np.testing.assert_array_equal(ModelFile.open(step.model.path).read().buffers_B, _model(tmp_path).read().buffers_B)


def test_counters_take_the_maximum_and_never_fall(tmp_path: Path) -> None:
    updates = _updates(tmp_path)
    counters_C = ModelFile.open(_step(tmp_path, FedAvg(), updates=updates, block=3).model.path).read().counters_C
    np.testing.assert_array_equal(counters_C, np.maximum(_counters(updates).max(axis=0), [5, 100, 0, -3]))
    assert counters_C.dtype == np.int64


def test_counters_beyond_float_precision_survive(tmp_path: Path) -> None:
    updates, large = _updates(tmp_path), (1 << 62) + 1
    updates[0].path.write_bytes(updates[0].path.read_bytes()[:-8] + np.int64(large).tobytes())
    counters_C = ModelFile.open(_step(tmp_path, FedAvg(), updates=updates).model.path).read().counters_C
    assert counters_C[-1] == large


def test_frozen_tensors_are_copied(tmp_path: Path) -> None:
    step = _step(tmp_path, FedAvg())
    assert ModelFile.open(step.model.path).read().frozen == {"table": b"frozen"}


def test_an_update_of_weight_zero_leaves_no_trace(tmp_path: Path) -> None:
    updates = _updates(tmp_path)
    without = _step(
        tmp_path, FedAdam(), "without", updates=updates[:2], combination=WeightedSum(np.array([0.25, 0.75]))
    )
    poison = np.full(D + B, np.nan, "<f4").tobytes() + np.full(C, 10**9).tobytes()
    updates[2].path.write_bytes(poison)
    poisoned = _step(tmp_path, FedAdam(), "with", updates=updates, combination=WeightedSum(np.array([0.25, 0.75, 0.0])))
    assert poisoned.model.sha256 == without.model.sha256


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=NAMES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given(block=st.integers(1, 60))
def test_the_block_leaves_every_byte_alone(tmp_path: Path, optimizer: ServerOptimizer, block: int) -> None:
    first, small = _step(tmp_path, optimizer, "first"), _step(tmp_path, optimizer, "first-small", block=block)
    state, small_state = first.state and first.state.path, small.state and small.state.path
    second = _step(tmp_path, optimizer, "second", state=state, updates=_updates(tmp_path, 2))
    again = _step(tmp_path, optimizer, "again", state=small_state, updates=_updates(tmp_path, 2), block=block)
    assert second.model.sha256 == again.model.sha256
    assert (second.state and second.state.sha256) == (again.state and again.state.sha256)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=NAMES)
def test_the_digests_are_those_of_the_files(tmp_path: Path, optimizer: ServerOptimizer) -> None:
    step = _step(tmp_path, optimizer)
    for written in filter(None, (step.model, step.state)):
        assert written.sha256 == hashlib.sha256(written.path.read_bytes()).hexdigest()
    assert (tmp_path / "next.state").exists() == (step.state is not None)


def test_the_state_is_a_safetensors_file(tmp_path: Path) -> None:
    step = _step(tmp_path, FedAdam(beta1=0.5, beta2=0.75, tau=0.5))
    assert step.state is not None
    states_DS = safetensors.numpy.load_file(step.state.path)["states"]
    mean_D = np.array(COUNTS) / 100 @ _floats(_updates(tmp_path))[:, :D]
    np.testing.assert_allclose(states_DS[:, 0], mean_D / 2, rtol=1e-6)
    np.testing.assert_allclose(states_DS[:, 1], 0.75 * 0.25 + 0.25 * mean_D**2, rtol=1e-6)


def _left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("position", "name"), [(0, "conv"), (40, "head"), (50, "bn.mean"), (59, "bn.var")])
def test_a_result_that_is_not_finite_fails_the_round(tmp_path: Path, position: int, name: str) -> None:
    model, updates = _model(tmp_path), _updates(tmp_path)
    floats = np.fromfile(updates[1].path, "<f4")
    floats[position] = np.inf
    floats.tofile(updates[1].path)
    before = _left(tmp_path)
    with pytest.raises(RoundFailed, match=f"holds inf in tensor '{name}'"):
        _step(tmp_path, FedAdam(), model=model, updates=updates, block=16)
    assert _left(tmp_path) == before


def test_a_model_or_state_that_overflows_fails_the_round(tmp_path: Path) -> None:
    model, updates = _model(tmp_path), _updates(tmp_path)
    before = _left(tmp_path)
    with pytest.raises(RoundFailed, match="the new model holds"):
        _step(tmp_path, FedAvg(learning_rate=1e40), model=model, updates=updates)
    np.concatenate([np.full(D, 1e22, "<f4"), np.ones(B + 2 * C, "<f4")]).tofile(updates[0].path)
    with pytest.raises(RoundFailed, match="the fedadam state holds inf"):
        _step(tmp_path, FedAdam(), model=model, updates=updates)
    assert _left(tmp_path) == before


@pytest.mark.parametrize("kept", [0, 100, 4 * D + 3, 4 * (D + B) + 8])
def test_an_update_cut_short_is_corrupt_and_writes_nothing(tmp_path: Path, kept: int) -> None:
    model, updates = _model(tmp_path), _updates(tmp_path)
    updates[2].path.write_bytes(updates[2].path.read_bytes()[:kept])
    before = _left(tmp_path)
    with pytest.raises(Corrupt, match=rf"update-1-2 ends after {kept} bytes"):
        _step(tmp_path, FedAdam(), model=model, updates=updates)
    assert _left(tmp_path) == before


def test_the_state_of_another_optimizer_or_cut_short_is_corrupt(tmp_path: Path) -> None:
    step = _step(tmp_path, FedAdam())
    assert step.state is not None
    with pytest.raises(Corrupt, match="is not the fedyogi state"):
        _step(tmp_path, FedYogi(), "other", state=step.state.path)
    step.state.path.write_bytes(step.state.path.read_bytes()[:-1])
    with pytest.raises(Corrupt, match=r"next\.state ends after"):
        _step(tmp_path, FedAdam(), "other", state=step.state.path)


def test_negative_weights_are_a_bug(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="negative weights"):
        _step(tmp_path, FedAvg(), combination=WeightedSum(np.array([0.5, 0.6, -0.1])))


def test_the_plan_names_the_rule_and_its_parameters() -> None:
    plan = AggregatorPlan(name="multi-krum", f=2, m=3, pre=("nnm", "bucketing"), buckets=3, clip_norm=2.0)
    assert aggregator_for(plan) == rule(
        "multi-krum", f=2, m=3, max_examples=1_000_000, pre=["nnm", "bucketing"], buckets=3, clip_norm=2.0
    )
    assert aggregator_for(AggregatorPlan()) == rule("mean", weighting="examples", max_examples=1_000_000)


def test_a_coordinate_rule_takes_the_middle_of_everything(tmp_path: Path) -> None:
    """Of buffers too, and of counters: one liar must not choose them."""
    updates, before = _updates(tmp_path), _model(tmp_path).read()
    step = _step(tmp_path, FedAvg(), updates=updates, combination=Coordinatewise(Middle(1), (0, 1, 2)), block=5)
    after, floats = ModelFile.open(step.model.path).read(), _floats(updates)
    np.testing.assert_allclose(after.trainable_D, before.trainable_D + np.median(floats[:, :D], axis=0), rtol=1e-5)
    np.testing.assert_array_equal(after.buffers_B, np.median(floats[:, D:], axis=0).astype(np.float32))
    np.testing.assert_array_equal(after.counters_C, np.maximum(np.median(_counters(updates), axis=0), [5, 100, 0, -3]))


def test_mixed_and_scaled_updates_leave_buffers_means(tmp_path: Path) -> None:
    updates = _updates(tmp_path)
    mix_MN = np.array([[0.25, 0.25, 0], [0, 0.1, 0.1]])  # rows scaled by a norm bound do not sum to 1
    step = _step(tmp_path, FedAvg(), updates=updates, combination=Coordinatewise(Closest(2), (0, 1), mix_MN))
    floats = _floats(updates)
    mixed = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]]) @ floats[:, D:]
    np.testing.assert_allclose(ModelFile.open(step.model.path).read().buffers_B, mixed.mean(axis=0), rtol=1e-6)


def test_weights_of_less_than_one_still_make_a_mean_of_buffers(tmp_path: Path) -> None:
    updates, before = _updates(tmp_path), _model(tmp_path).read()
    step = _step(tmp_path, FedAvg(), updates=updates, combination=WeightedSum(np.array([0.1, 0.0, 0.1])))
    after, floats = ModelFile.open(step.model.path).read(), _floats(updates)
    np.testing.assert_allclose(after.trainable_D, before.trainable_D + 0.1 * (floats[0, :D] + floats[2, :D]), rtol=1e-5)
    np.testing.assert_allclose(after.buffers_B, floats[[0, 2], D:].mean(axis=0), rtol=1e-6)
    nothing = _step(tmp_path, FedAvg(), "nothing", updates=updates, combination=WeightedSum(np.zeros(3)))
    assert ModelFile.open(nothing.model.path).digest() == _model(tmp_path).digest()


def test_the_combined_update_can_be_kept_and_begun_from(tmp_path: Path) -> None:
    updates = _updates(tmp_path)
    kept = _step(tmp_path, FedAdam(), updates=updates, aggregate_out=tmp_path / "aggregate")
    assert kept.aggregator_state is not None
    assert kept.aggregator_state.sha256 == hashlib.sha256((tmp_path / "aggregate").read_bytes()).hexdigest()
    last = StoredRows.open(tmp_path / "aggregate", LAYOUT).rows([LAST_AGGREGATE], LAYOUT)
    mean_D = np.array(COUNTS) / 100 @ _floats(updates)[:, :D]
    np.testing.assert_allclose(last.read(0, D)[0], mean_D, rtol=1e-5)
    weights = WeightedSum(np.array([0.0, 0.0, 0.0, 1.0]))
    model = _model(tmp_path)
    again = _step(tmp_path, FedAvg(), "again", updates=updates, combination=weights, reference=last, model=model)
    moved_D = ModelFile.open(again.model.path).read().trainable_D - model.read().trainable_D
    np.testing.assert_allclose(moved_D, mean_D, atol=1e-6)


def test_the_rows_of_updates_are_their_differences(tmp_path: Path) -> None:
    updates = _updates(tmp_path)
    np.testing.assert_array_equal(trainable_rows(updates).read(0, D), _floats(updates)[:, :D].astype(np.float32))


def _peak_bytes(folder: Path, size: int) -> int:
    layout = Layout(
        (
            TensorSpec("w", (size,), "float32", Role.TRAINABLE),
            TensorSpec("b", (size // 2,), "float32", Role.BUFFER),
            TensorSpec("c", (size // 4,), "int64", Role.COUNTER),
        )
    )
    zeros = Model(layout, np.zeros(size, "f4"), np.ones(size // 2, "f4"), np.zeros(size // 4, "i8"), {})
    model, updates = write_model(folder / "large", zeros), []
    for index in range(3):
        (folder / str(index)).write_bytes(bytes(layout.update_bytes))
        updates.append(UpdateFile.open(folder / str(index), layout))
    state = None
    for number in range(2):
        tracemalloc.start()
        step = step_model(
            model,
            updates,
            WeightedSum(np.full(3, 1 / 3)),
            FedAdam(),
            state,
            out=folder / f"out-{number}",
            state_out=folder / f"state-{number}",
            block=1 << 12,
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        state = step.state and step.state.path
    return peak


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    small, large = _peak_bytes(tmp_path, 1 << 16), _peak_bytes(tmp_path, 1 << 20)
    # A sixteenfold model; how many blocks the threads hold at the peak differs a little from run to run.
    assert large < 2 * small
    assert large < 2 << 20  # one vector of the large model takes 4 MiB
