"""The heart task without torch: logistic regression in numpy, for many small sites. In a site's configuration::

    [tasks.heart]
    entry = "foedus.examples.heart.logistic:task_for"
    parameters = { hospital = "cleveland", part = 0 }

A hospital's training patients are cut into ``PARTS``, so that four hospitals become twenty sites.

Shape suffixes: N patients, B batch, F features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...client_sdk.array_task import ArrayTask
from ...client_sdk.task import TrainingJob
from ...errors import ConfigError
from ...layout import Role
from .data import NUM_FEATURES, Patients, training_and_test
from .scaling import UNSCALED, Scaling
from .scores import accuracy

PARTS = 5

Arrays = dict[str, npt.NDArray[Any]]


def task_for(*, hospital: str, part: int, split: int = 0) -> ArrayTask:
    """The task at one site, with every ``PARTS``-th training patient of a hospital and all of its test patients.

    Raises:
        ConfigError: there is no such hospital, or no such part.
    """
    return logistic_task(*part_of(hospital, part, split))


def part_of(hospital: str, part: int | None, split: int) -> tuple[Patients, Patients]:
    """Training patients of one part of a hospital, or of all, and its test patients.

    Raises:
        ConfigError: there is no such hospital, or no such part.
    """
    training, test = training_and_test(hospital, split)
    if part is None:
        return training, test
    if part not in range(PARTS):
        raise ConfigError(f"part is {part}, expected 0 to {PARTS - 1}")
    return training.of(np.arange(part, len(training), PARTS)), test


def logistic_task(training: Patients, test: Patients, scaling: Scaling = UNSCALED) -> ArrayTask:
    """The task on any patients; its initial model carries the scaling."""

    def initial(_seed: int) -> Arrays:
        return {
            "weight": np.zeros(NUM_FEATURES, np.float32),
            "bias": np.zeros(1, np.float32),
            "mean_F": scaling.mean_F,
            "deviation_F": scaling.deviation_F,
        }

    def train(arrays: Arrays, job: TrainingJob) -> tuple[Arrays, int]:
        features_NF, random = _scaled(training, arrays), np.random.default_rng(job.seed)
        size, done = min(job.training.batch_size, len(training)), 0
        steps = job.training.steps or (job.training.epochs or 1) * -(-len(training) // size)
        while done < steps:
            order_N = random.permutation(len(training))
            for start in range(0, len(training), size):
                if done == steps or job.should_stop():
                    break
                batch_B = order_N[start : start + size]
                x_BF, error_B = (
                    features_NF[batch_B],
                    _chance(features_NF[batch_B], arrays) - training.disease_N[batch_B],
                )
                arrays["weight"] -= job.training.learning_rate * (error_B @ x_BF / len(batch_B)).astype(np.float32)
                arrays["bias"] -= np.float32(job.training.learning_rate * error_B.mean())
                done += 1
                job.report(done)
            if job.should_stop():
                break
        return {"weight": arrays["weight"], "bias": arrays["bias"]}, len(training)

    def evaluate(arrays: Arrays) -> tuple[int, dict[str, float]]:
        chance_N = _chance(_scaled(test, arrays), arrays)
        return len(test), {"accuracy": accuracy(chance_N - 0.5, test.disease_N)}

    roles = {"mean_F": Role.FROZEN, "deviation_F": Role.FROZEN}
    return ArrayTask(name="heart", initial=initial, train=train, evaluate=evaluate, roles=roles)


def _scaled(patients: Patients, arrays: Arrays) -> npt.NDArray[np.float32]:
    return np.asarray((patients.features_NF - arrays["mean_F"]) / arrays["deviation_F"])


def _chance(x_BF: npt.NDArray[np.float32], arrays: Arrays) -> npt.NDArray[np.float32]:
    """Of disease, by the model."""
    return np.asarray(1 / (1 + np.exp(-(x_BF @ arrays["weight"] + arrays["bias"]))))
