"""The example's claim: federated averaging is as good as having all patients in one place."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest
from foedus.client_sdk.task import TrainingJob, job_seed
from foedus.examples.heart.baseline import alone, centralised, heart_plan, quality
from foedus.examples.heart.data import HOSPITALS, together, training_and_test
from foedus.examples.heart.task import task_for
from foedus.modelfile import Model

SPLITS = range(5)


def federated(split: int, rounds: int) -> Model:
    """FedAvg in its plainest form, over the four hospitals' own tasks."""
    plan = heart_plan()
    tasks = {hospital: task_for(hospital=hospital, split=split) for hospital in HOSPITALS}
    model = tasks["cleveland"].initial(plan.seed)
    for round_number in range(1, rounds + 1):
        results = []
        for hospital, task in tasks.items():
            seed = job_seed(plan.seed + split, round_number, hospital)
            job = TrainingJob(run="heart", round=round_number, site=hospital, training=plan.training, seed=seed)
            results.append(task.train(model, job))
        weights = [result.num_examples for result in results]
        trainable = np.average([result.model.trainable_D for result in results], axis=0, weights=weights)
        buffers = np.average([result.model.buffers_B for result in results], axis=0, weights=weights)
        counters = np.max([result.model.counters_C for result in results], axis=0)
        model = Model(model.layout, trainable.astype(np.float32), buffers.astype(np.float32), counters, {})
    return model


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


def test_after_one_round_the_scaling_is_that_of_all_training_patients_together() -> None:
    model = federated(split=0, rounds=1)
    everyone = together([training_and_test(hospital, 0)[0] for hospital in HOSPITALS]).features_NF.astype(float)
    arrays = model.arrays()
    np.testing.assert_allclose(arrays["scaling.mean_F"], everyone.mean(0), rtol=1e-6)
    np.testing.assert_allclose(arrays["scaling.second_F"], (everyone**2).mean(0), rtol=1e-6)
    assert arrays["scaling.pooled"] == 1


def test_later_rounds_leave_the_scaling_alone() -> None:
    np.testing.assert_array_equal(federated(split=0, rounds=1).buffers_B, federated(split=0, rounds=3).buffers_B)
