"""What every kind of task keeps, whoever wrote its training code."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from foedus.client_sdk.array_task import ArrayTask
from foedus.client_sdk.outbound import update_blocks
from foedus.client_sdk.sklearn_task import sklearn_task
from foedus.client_sdk.task import TrainingJob
from foedus.client_sdk.torch_task import TorchTask
from foedus.layout import Role
from foedus.modelfile import ModelFile, write_model
from foedus.plan import LocalTraining
from sklearn.linear_model import SGDClassifier
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(40, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] > 0).astype(np.float32)


def arrays() -> ArrayTask:
    def train(values, job):
        draw = np.random.default_rng(job.seed)
        for step in range(job.training.steps or 2 * job.training.epochs):
            if job.should_stop():
                break
            batch = draw.integers(0, len(X), 8)
            error = X[batch] @ values["w"] - Y[batch]
            values["w"] -= np.float32(job.training.learning_rate) * X[batch].T @ error / 8
            job.report(step + 1)
        values["seen"] += 1
        return values, len(X), {"loss": float(np.mean((X @ values["w"] - Y) ** 2))}

    return ArrayTask(
        name="t",
        initial=lambda seed: {
            "w": np.random.default_rng(seed).normal(size=3).astype(np.float32),
            "seen": np.zeros(1, np.int64),
        },
        train=train,
        evaluate=lambda values: (len(X), {"loss": float(np.mean((X @ values["w"] - Y) ** 2))}),
    )


def network() -> TorchTask:
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)[:, None])
    return TorchTask(
        name="t",
        model=lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1)),
        loss=lambda model, batch: mse_loss(model(batch[0]), batch[1]),
        train_data=lambda: data,
        test_data=lambda: data,
    )


def linear():
    return sklearn_task(
        name="t",
        estimator=SGDClassifier(loss="log_loss"),
        num_features=3,
        data=lambda: (X, Y.astype(int)),
        test_data=lambda: (X, Y.astype(int)),
        classes=[0, 1],
    )


@pytest.fixture(params=[arrays, network, linear], ids=["arrays", "torch", "scikit-learn"])
def task(request):
    return request.param()


def job(**changes) -> TrainingJob:
    values = {"run": "r", "round": 1, "site": "s", "seed": 7, "training": LocalTraining(epochs=2, batch_size=8)}
    return TrainingJob(**{**values, **changes})


def content(model):
    return (model.trainable_D.tobytes(), model.buffers_B.tobytes(), model.counters_C.tobytes(), dict(model.frozen))


def test_a_seed_names_a_model_of_the_tasks_layout(task):
    first, again = task.initial(3), task.initial(3)
    assert content(first) == content(again)
    assert first.layout == task.layout()
    assert first.layout.digest == task.layout().digest
    assert first.trainable_D.shape == (task.layout().num_trainable,)


def test_the_same_job_gives_the_same_bytes_and_leaves_what_it_received(task):
    received = task.initial(3)
    before = content(received)
    first, again = task.train(received, job()), task.train(received, job())
    assert content(received) == before
    assert content(first.model) == content(again.model)
    assert (first.num_examples, first.num_steps, dict(first.metrics)) == (
        again.num_examples,
        again.num_steps,
        dict(again.metrics),
    )
    assert first.model.layout == received.layout
    assert content(first.model) != before
    assert first.num_examples == len(X)
    assert first.num_steps > 0


def test_another_process_would_give_the_same(task):
    """Nothing depends on how often or on which thread the task was used."""
    received, found = task.initial(3), []
    task.evaluate(received)
    thread = threading.Thread(target=lambda: found.append(task.train(received, job())))
    thread.start()
    thread.join()
    assert content(found[0].model) == content(task.train(received, job()).model)


def test_steps_are_reported_as_they_grow(task):
    reported: list[int] = []
    result = task.train(task.initial(3), job(report=reported.append))
    assert reported == sorted(reported)
    assert reported[-1] == result.num_steps


def test_what_is_called_off_stops_between_steps(task):
    asked: list[int] = []
    whole = task.train(task.initial(3), job()).num_steps

    def should_stop() -> bool:
        asked.append(1)
        return len(asked) > 1

    part = task.train(task.initial(3), job(should_stop=should_stop))
    assert 0 <= part.num_steps < whole
    assert np.isfinite(part.model.trainable_D).all()


def test_measuring_changes_nothing_and_repeats(task):
    model = task.train(task.initial(3), job()).model
    before = content(model)
    first, again = task.evaluate(model), task.evaluate(model)
    assert content(model) == before
    assert first.num_examples == again.num_examples == len(X)
    assert dict(first.metrics) == dict(again.metrics)
    assert all(np.isfinite(list(first.metrics.values())))


def test_its_model_survives_the_file_and_its_update_has_the_size_announced(task, tmp_path):
    received = task.initial(3)
    written = write_model(tmp_path / "model", received)
    assert content(ModelFile.open(written.path).read()) == content(received)
    result = task.train(ModelFile.open(written.path).read(), job())
    update = b"".join(bytes(block) for block in update_blocks(received, result.model))
    assert len(update) == task.layout().update_bytes
    difference = np.frombuffer(update, np.float32, task.layout().num_trainable)
    np.testing.assert_array_equal(difference, result.model.trainable_D - received.trainable_D)
    assert task.layout().of(Role.TRAINABLE)
