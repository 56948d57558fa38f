"""Linear scikit-learn estimators that learn in batches, as a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier
from sklearn.metrics import log_loss, mean_squared_error

from ..errors import ConfigError
from ..plan import LocalTraining
from .array_task import ArrayTask
from .schedule import batches, must_stop, planned_steps
from .task import TrainingJob

Table = tuple[npt.ArrayLike, npt.ArrayLike]
Arrays = dict[str, npt.NDArray[Any]]


def sklearn_task(
    *,
    name: str,
    estimator: Any,
    num_features: int,
    data: Callable[[], Table],
    test_data: Callable[[], Table] | None = None,
    classes: Sequence[Any] | None = None,
) -> ArrayTask:
    """A task from a linear estimator with ``partial_fit``, such as ``SGDClassifier``.

    ``coef_`` and ``intercept_`` are the model; a fresh one is all zeros. Each step hands one batch
    to ``partial_fit``. Note that ``SGDClassifier`` and its kin then move once per *example* of the
    batch; regularisation is the estimator's own (``penalty``, ``alpha``). The plan's learning rate
    is used, constant, by every estimator that has ``eta0``.

    Metrics: classifiers measure "accuracy" and "loss" (log loss, or the share of errors where the
    estimator has no probabilities), regressors "loss" (mean squared error).

    Args:
        name: the name under which plans ask for the task.
        estimator: an unfitted estimator; it is cloned, never changed.
        num_features: columns of X, so that the model can be made without data.
        data: gives (X, y) to train on, X of shape (N, num_features).
        test_data: gives held-out (X, y), or None.
        classes: every label that can occur at any site; the same at all sites. For classifiers.

    Raises:
        ConfigError: the estimator is not linear, cannot learn in batches, averages its weights, or
            is a classifier without ``classes``.
    """
    linear = _Linear(name, estimator, num_features, None if classes is None else tuple(classes))
    linear.check()
    return ArrayTask(
        name=name,
        initial=lambda _seed: linear.zeros(),
        train=lambda arrays, job: linear.train(arrays, data(), job),
        evaluate=None if test_data is None else lambda arrays: linear.evaluate(arrays, test_data()),
    )


@dataclass(frozen=True, slots=True)
class _Linear:
    task: str
    estimator: Any
    num_features: int
    classes: tuple[Any, ...] | None

    def check(self) -> None:
        kind = type(self.estimator).__name__
        if not hasattr(self.estimator, "partial_fit"):
            raise ConfigError(
                f"task {self.task!r}: {kind} has no partial_fit, so it cannot continue from a received model",
                hint="use SGDClassifier or SGDRegressor, or wrap the estimator in an ArrayTask",
            )
        if is_classifier(self.estimator) and (self.classes is None or len(set(self.classes)) < 2):
            raise ConfigError(
                f"task {self.task!r}: a classifier needs at least two classes, got {self.classes}",
                hint="give classes=(…), the same at every site",
            )
        if self.estimator.get_params().get("average"):
            raise ConfigError(
                f"task {self.task!r}: {kind} averages its weights over the steps, which the server does too",
                hint="set average=False",
            )
        if not hasattr(self.primed(self.estimator), "coef_"):
            raise ConfigError(
                f"task {self.task!r}: {kind} has no coef_ and intercept_, so it is not linear",
                hint="wrap the estimator in an ArrayTask",
            )

    def primed(self, estimator: Any) -> Any:
        """A clone that has seen one all-zero row, so that every fitted attribute exists."""
        fresh = clone(estimator)
        row = np.zeros((1, self.num_features))
        if self.classes is None:
            return fresh.partial_fit(row, np.zeros(1))
        return fresh.partial_fit(row, np.asarray(self.classes[:1]), classes=np.unique(self.classes))

    def zeros(self) -> Arrays:
        fitted = self.primed(self.estimator)
        return {"coef": np.zeros_like(fitted.coef_), "intercept": np.zeros_like(np.atleast_1d(fitted.intercept_))}

    def loaded(self, arrays: Arrays, estimator: Any) -> Any:
        fitted = self.primed(estimator)
        fitted.coef_ = np.ascontiguousarray(arrays["coef"])
        fitted.intercept_ = np.ascontiguousarray(arrays["intercept"])
        return fitted

    def train(self, arrays: Arrays, table: Table, job: TrainingJob) -> tuple[Arrays, int, dict[str, float]]:
        fitted = self.loaded(arrays, self.configured(job))
        x, y = self.checked(table)
        started = job.clock.monotonic()
        last = planned_steps(job.training, len(x))
        done = 0
        job.report(0)  # so that stopping at once counts as no step
        for step, indices in batches(job.seed, len(x), job.training.batch_size, 0, last):
            if must_stop(job, job.clock.monotonic() - started):
                break
            fitted.partial_fit(x[indices], y[indices])
            done = step + 1
            job.report(done)
        if not done:
            return arrays, 0, {}
        return (
            {"coef": fitted.coef_, "intercept": fitted.intercept_},
            len(x),
            {"loss": self.measure(fitted, x, y)["loss"]},
        )

    def evaluate(self, arrays: Arrays, table: Table) -> tuple[int, dict[str, float]]:
        x, y = self.checked(table)
        return len(x), self.measure(self.loaded(arrays, self.estimator), x, y) if len(x) else {}

    def measure(self, fitted: Any, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> dict[str, float]:
        if not is_classifier(fitted):
            return {"loss": float(mean_squared_error(y, fitted.predict(x)))}
        accuracy = float(np.mean(fitted.predict(x) == y))
        if not hasattr(fitted, "predict_proba"):
            return {"loss": 1.0 - accuracy, "accuracy": accuracy}
        return {"loss": float(log_loss(y, fitted.predict_proba(x), labels=fitted.classes_)), "accuracy": accuracy}

    def configured(self, job: TrainingJob) -> Any:
        """The estimator with the plan's learning rate and the job's seed."""
        _refuse(job.training, self.task)
        known = self.estimator.get_params()
        wanted = {
            "eta0": job.training.learning_rate,
            "learning_rate": "constant",
            "random_state": job.seed % (1 << 32),
            "shuffle": False,
        }
        if "eta0" not in known:
            del wanted["learning_rate"]
        return clone(self.estimator).set_params(**{key: value for key, value in wanted.items() if key in known})

    def checked(self, table: Table) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        # The model is float64, and scikit-learn's loops take examples of the model's own dtype alone.
        x, y = np.asarray(table[0], np.float64), np.asarray(table[1])
        if x.ndim != 2 or x.shape[1] != self.num_features or y.shape != (len(x),):
            raise ConfigError(
                f"task {self.task!r}: the data has shapes {x.shape} and {y.shape}, "
                f"expected (N, {self.num_features}) and (N,)"
            )
        return x, y


def _refuse(training: LocalTraining, task: str) -> None:
    """Raise ConfigError for what ``partial_fit`` cannot do exactly."""
    if training.proximal_mu:
        raise ConfigError(
            f"task {task!r}: partial_fit cannot apply the proximal term (proximal_mu is {training.proximal_mu})",
            hint="set proximal_mu = 0, or write the model as a TorchTask",
        )
    if training.optimizer != "sgd" or training.momentum:
        raise ConfigError(
            f"task {task!r}: the estimator brings its own optimizer, not {training.optimizer} "
            f"with momentum {training.momentum}",
            hint='set optimizer = "sgd" and momentum = 0, or write the model as a TorchTask',
        )
    if training.weight_decay:
        raise ConfigError(
            f"task {task!r}: partial_fit cannot apply weight_decay ({training.weight_decay})",
            hint="set weight_decay = 0 and the estimator's own penalty and alpha",
        )
