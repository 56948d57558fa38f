"""The example's claim: federated averaging is as good as having all patients in one place."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
from foedus.client_sdk.task import TrainingJob, job_seed
from foedus.examples.heart.baseline import alone, centralised, heart_plan, quality
from foedus.examples.heart.data import HOSPITALS, Patients, together, training_and_test
from foedus.examples.heart.scaling import scaling_of
from foedus.examples.heart.task import initial_model, task_for
from foedus.modelfile import Model

SPLITS = range(5)


def federated(split: int, rounds: int) -> Model:
    """FedAvg in its plainest form, over the four hospitals' own tasks."""
    plan = heart_plan()
    tasks = {hospital: task_for(hospital=hospital, split=split) for hospital in HOSPITALS}
    model = initial_model(scaling_of(everyone(split)), plan.seed)
    for round_number in range(1, rounds + 1):
        results = []
        for hospital, task in tasks.items():
            seed = job_seed(plan.seed + split, round_number, hospital)
            job = TrainingJob(run="heart", round=round_number, site=hospital, training=plan.training, seed=seed)
            results.append(task.train(model, job))
        weights = [result.num_examples for result in results]
        trainable = np.average([result.model.trainable_D for result in results], axis=0, weights=weights)
        model = replace(model, trainable_D=trainable.astype(np.float32))
    return model


def everyone(split: int) -> Patients:
    return together([training_and_test(hospital, split)[0] for hospital in HOSPITALS])


@pytest.fixture(scope="module")
def federated_qualities() -> list:
    return [quality(federated(split, heart_plan().rounds), split) for split in SPLITS]


@pytest.fixture(scope="module")
def centralised_qualities() -> list:
    return [quality(centralised(split), split) for split in SPLITS]


def test_federated_averaging_equals_training_in_one_place(federated_qualities, centralised_qualities) -> None:
    ours = mean(q.accuracy for q in federated_qualities)
    pooled = mean(q.accuracy for q in centralised_qualities)
    assert abs(ours - pooled) <= 0.02
    assert ours >= 0.77


def test_it_ranks_patients_as_well_too(federated_qualities, centralised_qualities) -> None:
    ours = mean(q.auc for q in federated_qualities)
    assert abs(ours - mean(q.auc for q in centralised_qualities)) <= 0.02
    assert ours >= 0.85


def test_it_beats_the_average_hospital_on_its_own(federated_qualities) -> None:
    single = mean(quality(alone(hospital, 0), 0).accuracy for hospital in HOSPITALS)
    assert federated_qualities[0].accuracy > single + 0.01


def test_training_leaves_the_scaling_alone() -> None:
    model, scaling = federated(split=0, rounds=2), scaling_of(everyone(0))
    assert model.frozen["mean_F"] == scaling.mean_F.tobytes()
    assert model.frozen["deviation_F"] == scaling.deviation_F.tobytes()
