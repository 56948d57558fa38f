"""Tasks made of numpy arrays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from foedus.client_sdk.array_task import ArrayTask
from foedus.client_sdk.task import Task, TrainingJob
from foedus.errors import ConfigError, InvalidUpdate, LayoutMismatch
from foedus.layout import Role
from foedus.plan import LocalTraining


def job(**changes) -> TrainingJob:
    values = {"run": "r", "round": 1, "site": "s", "seed": 0, "training": LocalTraining(steps=3, learning_rate=0.5)}
    return TrainingJob(**(values | changes))


def initial(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "w": draw.normal(size=(2, 3)).astype(np.float32),
        "mean": np.zeros(3, np.float32),
        "count": np.array(4, np.int64),
        "table": np.arange(3, dtype=np.int16),
    }


ROLES = {"mean": Role.BUFFER, "table": Role.FROZEN}


def toward_one(arrays, job: TrainingJob):
    for step in range(job.training.steps):
        arrays["w"] += job.training.learning_rate * (1 - arrays["w"])
        job.report(step + 1)
    arrays["mean"][:] = arrays["table"]
    arrays["count"] += 1
    return arrays, 7, {"loss": np.float32(0.25)}


def test_arrays_go_in_and_out() -> None:
    reports: list[int] = []
    task: Task = ArrayTask(
        name="a",
        initial=initial,
        train=toward_one,
        evaluate=lambda arrays: (5, {"size": np.abs(arrays["w"]).sum()}),
        roles=ROLES,
    )
    received = task.initial(3)
    before = received.trainable_D.copy()
    result = task.train(received, job(report=reports.append))
    np.testing.assert_array_equal(received.trainable_D, before)
    np.testing.assert_allclose(result.model.arrays()["w"], 1 + (initial(3)["w"] - 1) / 8, rtol=1e-6)
    np.testing.assert_array_equal(result.model.buffers_B, [0, 1, 2])
    assert result.model.counters_C.tolist() == [5]
    assert result.model.frozen == received.frozen
    assert (result.num_examples, result.num_steps, dict(result.metrics)) == (7, 3, {"loss": 0.25})
    assert reports == [1, 2, 3]
    measured = task.evaluate(received)
    assert measured.num_examples == 5
    assert measured.metrics["size"] == pytest.approx(np.abs(before).sum())


def test_it_keeps_the_dtypes_of_its_initial_arrays() -> None:
    seen = {}

    def train(arrays, job):
        seen.update({name: (array.dtype, array.shape) for name, array in arrays.items()})
        return arrays, 1

    wide = {"w": np.zeros((2, 2)), "flag": np.array([True])}
    task = ArrayTask(name="a", initial=lambda seed: wide, train=train)
    result = task.train(task.initial(0), job())
    assert seen == {"w": (np.float64, (2, 2)), "flag": (np.bool_, (1,))}
    assert result.num_steps == 1
    assert task.evaluate(result.model).num_examples == 0


@pytest.mark.parametrize(
    ("returned", "error", "words"),
    [
        ((dict(initial(0), w=np.ones(4)), 1), LayoutMismatch, "'w' has shape"),
        (({"w": np.ones((2, 3))}, 1), LayoutMismatch, "missing"),
        ((dict(initial(0), extra=np.ones(1)), 1), LayoutMismatch, "'extra'"),
        ((dict(initial(0), w=np.full((2, 3), np.nan)), 1), InvalidUpdate, "'w' holds values that are not finite"),
        ((initial(0), -1), InvalidUpdate, "-1 examples"),
    ],
)
def test_what_it_returns_is_checked(returned, error, words: str) -> None:
    task = ArrayTask(name="a", initial=initial, train=lambda arrays, job: returned, roles=ROLES)
    with pytest.raises(error, match=words):
        task.train(task.initial(0), job())


def test_a_foreign_model_and_a_foreign_role_are_refused() -> None:
    task = ArrayTask(name="a", initial=initial, train=toward_one, roles=ROLES)
    other = ArrayTask(name="b", initial=lambda seed: {"w": np.ones(2)}, train=toward_one)
    with pytest.raises(LayoutMismatch, match="task 'a'"):
        task.train(other.initial(0), job())
    with pytest.raises(ConfigError, match="'typo'"):
        ArrayTask(name="a", initial=initial, train=toward_one, roles={"typo": Role.BUFFER}).layout()


def test_it_needs_no_torch() -> None:
    code = "import sys, foedus.client_sdk.array_task; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
