"""A job that dies inside a round goes on where it was and ends in the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from foedus.client_sdk.task import LocalResult, TrainingJob
from foedus.client_sdk.torch_task import TorchTask
from foedus.clock import ManualClock
from foedus.plan import LocalTraining
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset


class Killed(Exception):
    """Stands for the death of the process."""


class Counted(TensorDataset):
    """Remembers how many examples were asked for."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__(*tensors)
        self.asked = 0

    def __getitem__(self, index: int):
        self.asked += 1
        return super().__getitem__(index)


DRAW = torch.Generator().manual_seed(0)
DATA = Counted(torch.randn(30, 5, generator=DRAW), torch.randn(30, 1, generator=DRAW))


class Network(nn.Module):
    """Dropout, BatchNorm, and a buffer that does not travel but moves while training."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.Dropout(0.5), nn.Linear(9, 1))
        self.register_buffer("drift", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.drift += 0.01
        return self.layers(x) + self.drift


TASK = TorchTask(
    name="t",
    model=Network,
    loss=lambda model, batch: mse_loss(model(batch[0]), batch[1]),
    train_data=lambda: DATA,
    checkpoint_seconds=0,
)
ADAM = LocalTraining(epochs=3, batch_size=7, optimizer="adam", learning_rate=0.01, proximal_mu=0.3)
MOMENTUM = LocalTraining(epochs=3, batch_size=7, learning_rate=0.05, momentum=0.9)


def job(training: LocalTraining, folder: Path | None) -> TrainingJob:
    return TrainingJob(run="run-1", round=3, site="a", training=training, seed=5, checkpoints=folder)


def dies_at(step: int, work: TrainingJob, task: TorchTask = TASK) -> None:
    def report(steps: int) -> None:
        if steps == step:
            raise Killed

    with pytest.raises(Killed):
        task.train(TASK.initial(0), replace(work, report=report))


def assert_same(got: LocalResult, expected: LocalResult) -> None:
    np.testing.assert_array_equal(got.model.trainable_D, expected.model.trainable_D)
    np.testing.assert_array_equal(got.model.buffers_B, expected.model.buffers_B)
    np.testing.assert_array_equal(got.model.counters_C, expected.model.counters_C)
    assert (got.num_steps, got.num_examples, got.metrics) == (
        expected.num_steps,
        expected.num_examples,
        expected.metrics,
    )


@pytest.mark.parametrize("training", [ADAM, MOMENTUM], ids=["adam-fedprox", "momentum"])
@pytest.mark.parametrize("step", [1, 4, 6, 14])
def test_a_resumed_job_ends_in_the_same_bits(training: LocalTraining, step: int, tmp_path: Path) -> None:
    undisturbed = TASK.train(TASK.initial(0), job(training, None))
    dies_at(step, job(training, tmp_path))
    reports: list[int] = []
    DATA.asked = 0
    resumed = TASK.train(TASK.initial(0), replace(job(training, tmp_path), report=reports.append))
    assert_same(resumed, undisturbed)
    assert reports == list(range(step + 1, 16))
    assert DATA.asked < 90
    assert list(tmp_path.iterdir()) == []


def test_dying_again_and_again_changes_nothing(tmp_path: Path) -> None:
    for step in (2, 3, 9, 13):
        dies_at(step, job(ADAM, tmp_path))
    assert_same(TASK.train(TASK.initial(0), job(ADAM, tmp_path)), TASK.train(TASK.initial(0), job(ADAM, None)))


@pytest.mark.parametrize(
    "change",
    [{"round": 4}, {"seed": 6}, {"run": "run-2"}, {"site": "b"}, {"training": MOMENTUM}],
    ids=lambda change: next(iter(change)),
)
def test_another_job_never_continues_from_it(change: dict, tmp_path: Path) -> None:
    dies_at(5, job(ADAM, tmp_path))
    other = replace(job(ADAM, tmp_path), **change)
    assert_same(TASK.train(TASK.initial(0), other), TASK.train(TASK.initial(0), replace(other, checkpoints=None)))


def test_another_received_model_never_continues_from_it(tmp_path: Path) -> None:
    dies_at(5, job(ADAM, tmp_path))
    fresh = TASK.initial(1)
    assert_same(TASK.train(fresh, job(ADAM, tmp_path)), TASK.train(fresh, job(ADAM, None)))


@pytest.mark.parametrize("how", ["empty", "text", "pickle", "torn", "flipped"])
def test_a_damaged_checkpoint_means_a_fresh_start(how: str, tmp_path: Path) -> None:
    dies_at(5, job(ADAM, tmp_path))
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    weights = good.index(saved_weights(file).numpy().tobytes())
    damaged = {
        "empty": b"",
        "text": b"PK\x03\x04 torn",
        "pickle": b"\x80\x04cos\nsystem\n.",
        "torn": good[: len(good) // 2],
        "flipped": good[: weights + 2] + bytes([good[weights + 2] ^ 64]) + good[weights + 3 :],
    }
    file.write_bytes(damaged[how])
    assert_same(TASK.train(TASK.initial(0), job(ADAM, tmp_path)), TASK.train(TASK.initial(0), job(ADAM, None)))


def saved_weights(file: Path) -> torch.Tensor:
    return torch.load(file, weights_only=True)["tensors"]["parameter/layers.0.weight"]


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    dies_at(5, job(ADAM, tmp_path / "deep" / "folder"))
    (file,) = (tmp_path / "deep" / "folder").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_is_written_as_often_as_the_task_says(tmp_path: Path) -> None:
    clock = ManualClock()
    written: list[int] = []

    def report(steps: int) -> None:
        for file in tmp_path.iterdir():
            written.append(steps)
            file.unlink()
        clock.advance(10)

    every_25 = replace(TASK, checkpoint_seconds=25)
    every_25.train(TASK.initial(0), replace(job(ADAM, tmp_path), clock=clock, report=report))
    assert written == [4, 7, 10, 13]


def test_time_spent_before_the_death_counts(tmp_path: Path) -> None:
    clock = ManualClock()
    training = ADAM.model_copy(update={"max_seconds": 100.0})
    work = replace(job(training, tmp_path), clock=clock)

    def report(steps: int) -> None:
        clock.advance(20)
        if steps == 3:
            raise Killed

    with pytest.raises(Killed):
        TASK.train(TASK.initial(0), replace(work, report=report))
    clock.advance(1e6)  # the time nobody worked does not count
    again = TASK.train(TASK.initial(0), replace(work, report=lambda _: clock.advance(20)))
    # Saved at step 3 with 40 s used, before that step's own 20 s: three more steps fit into 100 s.
    assert again.num_steps == 6
