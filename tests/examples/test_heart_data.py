"""The example's data, scores and task."""

from __future__ import annotations

import math

import numpy as np
import pytest
from foedus.client_sdk.task import Task, TrainingJob
from foedus.errors import ConfigError
from foedus.examples.heart.baseline import heart_plan
from foedus.examples.heart.data import HOSPITALS, NUM_FEATURES, patients_of, together, training_and_test
from foedus.examples.heart.logistic import PARTS, logistic_task, part_of
from foedus.examples.heart.logistic import task_for as task_of_part
from foedus.examples.heart.records import records_for
from foedus.examples.heart.scaling import scaling_from, scaling_of, scaling_query
from foedus.examples.heart.scores import accuracy, auc
from foedus.examples.heart.task import heart_task, initial_model, task_for
from foedus.layout import Role, names
from foedus.plan import LocalTraining
from foedus.privacy.analytics.answer import Answers
from foedus.privacy.analytics.counters import decode, encode
from hypothesis import given
from hypothesis import strategies as st


def test_the_four_hospitals_hold_the_published_patients() -> None:
    groups = [patients_of(hospital) for hospital in HOSPITALS]
    assert [len(group) for group in groups] == [303, 261, 46, 130]
    assert all(group.features_NF.shape[1] == NUM_FEATURES == 13 for group in groups)
    assert groups[2].disease_N.sum() == 45
    first = groups[0].features_NF[0]  # 63 years, male, typical angina, 145 mmHg, ..., hypertrophy
    np.testing.assert_allclose(first, [63, 1, 145, 233, 1, 150, 0, 2.3, 0, 0, 0, 0, 1])
    with pytest.raises(ConfigError, match="'vienna'"):
        patients_of("vienna")


@pytest.mark.parametrize("hospital", HOSPITALS)
def test_a_split_parts_the_patients_and_keeps_the_share_of_the_diseased(hospital: str) -> None:
    training, test = training_and_test(hospital, 3)
    everyone = patients_of(hospital)

    def rows(patients) -> list[tuple[float, ...]]:
        return sorted(map(tuple, np.column_stack([patients.features_NF, patients.disease_N]).tolist()))

    assert rows(together([training, test])) == rows(everyone)
    for label in (0, 1):
        num = int((everyone.disease_N == label).sum())
        assert abs((training.disease_N == label).sum() - 0.66 * num) <= 0.5
    again, _ = training_and_test(hospital, 3)
    other, _ = training_and_test(hospital, 4)
    np.testing.assert_array_equal(again.features_NF, training.features_NF)
    assert not np.array_equal(other.features_NF, training.features_NF)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=40))
def test_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([r[0] for r in rows], float), np.array([r[1] for r in rows], float)
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels == 1] for b in scores[labels == 0]]
    if pairs:
        assert auc(scores, labels) == pytest.approx(sum(pairs) / len(pairs))
    else:
        assert math.isnan(auc(scores, labels))


def test_accuracy_counts_right_predictions() -> None:
    assert accuracy(np.array([2.0, -1.0, 0.5, -3.0]), np.array([1.0, 1.0, 0.0, 0.0])) == 0.5


def test_the_tasks_of_all_hospitals_share_one_model() -> None:
    tasks: list[Task] = [task_for(hospital=hospital) for hospital in HOSPITALS]
    layout = tasks[0].layout()
    assert {task.layout().digest for task in tasks} == {layout.digest}
    assert names(layout.of(Role.TRAINABLE)) == ("linear.weight", "linear.bias")
    assert names(layout.of(Role.FROZEN)) == ("mean_F", "deviation_F")
    assert not any(task.initial(0).trainable_D.any() for task in tasks)


def test_a_hospital_measures_itself_and_leaves_out_an_auc_it_has_not() -> None:
    def measured(hospital: str):
        task = task_for(hospital=hospital)
        job = TrainingJob(run="r", round=1, site=hospital, training=heart_plan().training, seed=0)
        return task.evaluate(task.train(task.initial(0), job).model)

    assert set(measured("cleveland").metrics) == {"loss", "accuracy", "auc"}
    assert measured("cleveland").num_examples == len(training_and_test("cleveland", 0)[1])
    assert set(measured("switzerland").metrics) == {"loss", "accuracy"}


def test_every_hospital_scales_by_what_the_model_carries() -> None:
    everyone = together([training_and_test(hospital, 0)[0] for hospital in HOSPITALS])
    scaled = initial_model(scaling_of(everyone), 0)
    features_NF = everyone.features_NF.astype(float)
    np.testing.assert_allclose(np.frombuffer(scaled.frozen["mean_F"], "<f4"), features_NF.mean(0), rtol=1e-6)
    np.testing.assert_allclose(np.frombuffer(scaled.frozen["deviation_F"], "<f4"), features_NF.std(0), rtol=1e-5)
    task = task_for(hospital="hungary")
    job = TrainingJob(run="r", round=1, site="hungary", training=heart_plan().training, seed=0)
    assert task.evaluate(scaled).metrics.keys() == task.evaluate(task.initial(0)).metrics.keys()
    trained, unscaled = task.train(scaled, job).model, task.train(task.initial(0), job).model
    assert not np.allclose(trained.trainable_D, unscaled.trainable_D)


def test_the_question_about_scaling_is_answered_as_it_is_worked_out_from_all_patients() -> None:
    columns = [records_for(hospital=hospital) for hospital in HOSPITALS]
    query = scaling_query(4)
    counters_K = sum(encode(query, site) for site in columns)
    found = scaling_from(Answers(decode(query, counters_K), num_sites=4))
    expected = scaling_of(together([training_and_test(hospital, 0)[0] for hospital in HOSPITALS]))
    np.testing.assert_allclose(found.mean_F, expected.mean_F, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.deviation_F, expected.deviation_F, rtol=1e-4)


def test_a_site_of_the_twenty_has_a_fifth_of_a_hospital() -> None:
    parts = [part_of("cleveland", part, 0)[0] for part in range(PARTS)]
    whole = training_and_test("cleveland", 0)[0]
    assert sum(map(len, parts)) == len(whole)
    assert sorted(map(tuple, np.concatenate([part.features_NF for part in parts]))) == sorted(
        map(tuple, whole.features_NF)
    )
    with pytest.raises(ConfigError, match="part is 5"):
        task_of_part(hospital="cleveland", part=5)


def test_the_task_in_numpy_learns_what_the_one_in_torch_does() -> None:
    training, test = training_and_test("cleveland", 0)
    job = TrainingJob(run="r", round=1, site="s", training=LocalTraining(epochs=40, learning_rate=0.1), seed=0)
    accuracies = []
    for task in (logistic_task(training, test, scaling_of(training)), heart_task(training, test, scaling_of(training))):
        accuracies.append(task.evaluate(task.train(task.initial(0), job).model).metrics["accuracy"])
    assert abs(accuracies[0] - accuracies[1]) <= 0.03


def test_the_plan_is_the_published_protocol() -> None:
    plan = heart_plan()
    training = plan.training
    assert (plan.rounds, training.epochs, training.batch_size, training.learning_rate) == (30, 1, 16, 0.05)
    assert (plan.cohort.minimum, plan.evaluation.metric, plan.evaluation.larger_is_better) == (4, "accuracy", True)
