"""Linear scikit-learn estimators as tasks."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.client_sdk.schedule import epoch_order
from foedus.client_sdk.sklearn_task import sklearn_task
from foedus.client_sdk.task import TrainingJob
from foedus.errors import ConfigError
from foedus.plan import LocalTraining
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import MultinomialNB

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(90, 4))
BINARY = (X @ [1.0, -2.0, 0.5, 0.0] + 0.3 > 0).astype(int)
THREE = np.array(["a", "b", "c"])[np.argmax(X[:, :3], axis=1)]
TARGET = X @ [1.0, -2.0, 0.5, 0.0] + 0.3


def job(training: LocalTraining, **changes) -> TrainingJob:
    return TrainingJob(**({"run": "r", "round": 1, "site": "s", "seed": 2**62 + 9, "training": training} | changes))


def task(estimator, y, classes=None, **changes):
    values = {
        "name": "t",
        "estimator": estimator,
        "num_features": 4,
        "data": lambda: (X, y),
        "test_data": lambda: (X, y),
        "classes": classes,
    }
    return sklearn_task(**(values | changes))


@pytest.mark.parametrize(
    ("estimator", "y", "classes", "shape"),
    [
        (SGDClassifier(loss="log_loss"), BINARY, [0, 1], (1, 4)),
        (SGDClassifier(loss="hinge"), THREE, ["a", "b", "c"], (3, 4)),
        (SGDRegressor(), TARGET, None, (4,)),
    ],
    ids=["binary", "three-classes", "regression"],
)
def test_it_learns(estimator, y, classes, shape) -> None:
    wrapped = task(estimator, y, classes)
    received = wrapped.initial(0)
    assert received.arrays()["coef"].shape == shape
    assert not received.trainable_D.any()
    training = LocalTraining(epochs=5, batch_size=20, learning_rate=0.02)
    result = wrapped.train(received, job(training))
    assert (result.num_examples, result.num_steps) == (90, 25)
    assert wrapped.evaluate(result.model).metrics["loss"] < 0.5 * wrapped.evaluate(received).metrics["loss"]
    again = wrapped.train(received, job(training))
    np.testing.assert_array_equal(result.model.trainable_D, again.model.trainable_D)
    other = wrapped.train(received, job(training, seed=1))
    assert not np.array_equal(result.model.trainable_D, other.model.trainable_D)


def test_least_squares_follows_plain_stochastic_gradient_descent() -> None:
    """SGDRegressor without penalty moves by η(y − wx − b)x once per example, in the plan's order."""
    wrapped = task(SGDRegressor(penalty=None), TARGET)
    start = wrapped.initial(0)
    start.trainable_D[:] = [0.5, 0.1, -0.3, 2.0, -1.0]
    training = LocalTraining(epochs=2, batch_size=7, learning_rate=0.03)
    result = wrapped.train(start, job(training))
    w, b = np.array([0.5, 0.1, -0.3, 2.0]), -1.0
    for epoch in range(2):
        for row in epoch_order(2**62 + 9, epoch, 90):
            error = TARGET[row] - X[row] @ w - b
            w, b = w + 0.03 * error * X[row], b + 0.03 * error
    np.testing.assert_allclose(result.model.arrays()["coef"], w, rtol=1e-5)
    np.testing.assert_allclose(result.model.arrays()["intercept"], [b], rtol=1e-5)


def test_probabilities_measure_log_loss_and_margins_measure_errors() -> None:
    soft = task(SGDClassifier(loss="log_loss"), BINARY, [0, 1])
    assert soft.evaluate(soft.initial(0)).metrics["loss"] == pytest.approx(np.log(2))
    hard = task(SGDClassifier(loss="hinge"), BINARY, [0, 1])
    measured = hard.evaluate(hard.initial(0)).metrics
    assert measured["loss"] == pytest.approx(1 - measured["accuracy"])


def test_a_site_that_lacks_a_class_keeps_the_federations_shape() -> None:
    rows = THREE != "c"
    wrapped = task(SGDClassifier(loss="log_loss"), THREE, ["a", "b", "c"], data=lambda: (X[rows], THREE[rows]))
    result = wrapped.train(wrapped.initial(0), job(LocalTraining(epochs=1)))
    assert result.model.arrays()["coef"].shape == (3, 4)


def test_partial_work_and_no_work() -> None:
    reports: list[int] = []
    wrapped = task(SGDRegressor(), TARGET)
    training = LocalTraining(steps=40, batch_size=10)
    stopped = job(training, report=reports.append, should_stop=lambda: len(reports) == 4)
    assert wrapped.train(wrapped.initial(0), stopped).num_steps == 3
    assert reports == [0, 1, 2, 3]
    never = wrapped.train(wrapped.initial(0), job(training, should_stop=lambda: True))
    assert (never.num_steps, never.num_examples) == (0, 0)
    empty = task(SGDRegressor(), TARGET, data=lambda: (X[:0], TARGET[:0]))
    assert empty.train(empty.initial(0), job(training)).num_examples == 0


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (LocalTraining(steps=1, proximal_mu=0.1), "proximal_mu is 0.1"),
        (LocalTraining(steps=1, optimizer="adam"), "adam"),
        (LocalTraining(steps=1, momentum=0.5), "momentum 0.5"),
        (LocalTraining(steps=1, weight_decay=0.5), "weight_decay"),
    ],
)
def test_a_plan_it_cannot_follow_exactly_is_refused_with_the_mend(training: LocalTraining, words: str) -> None:
    wrapped = task(SGDRegressor(), TARGET)
    with pytest.raises(ConfigError, match=words) as caught:
        wrapped.train(wrapped.initial(0), job(training))
    assert "TorchTask" in caught.value.hint or "penalty" in caught.value.hint


@pytest.mark.parametrize(
    ("estimator", "classes", "words"),
    [
        (LogisticRegression(), [0, 1], "no partial_fit"),
        (MultinomialNB(), [0, 1], "not linear"),
        (SGDClassifier(average=True), [0, 1], "averages its weights"),
        (SGDClassifier(), None, "at least two classes"),
    ],
)
def test_an_unsuitable_estimator_is_refused_at_once(estimator, classes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        task(estimator, BINARY, classes)


def test_data_of_another_width_is_refused() -> None:
    wrapped = task(SGDRegressor(), TARGET, num_features=3)
    with pytest.raises(ConfigError, match=r"expected \(N, 3\)"):
        wrapped.train(wrapped.initial(0), job(LocalTraining(steps=1)))
