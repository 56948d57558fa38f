"""A task whose model is a set of named numpy arrays: no torch needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, InvalidUpdate, LayoutMismatch
from ..layout import Layout, Role, layout_of
from ..modelfile import Model
from .schedule import counting_steps
from .task import LocalResult, Measurement, TrainingJob

Arrays = Mapping[str, npt.NDArray[Any]]
Trained = tuple[Arrays, int] | tuple[Arrays, int, Mapping[str, float]]


class ArrayTask:
    """Wraps any training code that reads and returns arrays by name.

    ::

        def train(arrays, job):
            w = arrays["w"]
            for step in range(job.training.steps):
                w = w - job.training.learning_rate * gradient(w)
                job.report(step + 1)
            return {"w": w}, len(x)

        task = ArrayTask(name="mine", initial=lambda seed: {"w": np.zeros(13)}, train=train)

    Args:
        name: the name under which plans ask for the task.
        initial: the arrays of a fresh model by name; the same seed gives the same arrays.
        train: ``train(arrays, job)`` gets copies it may change, in the dtypes of ``initial``, and
            returns the trained arrays, the number of examples and, if it likes, their metrics. It
            calls ``job.report(steps)`` as it goes (the last value is the number of steps; 1 if it
            never does) and honours ``job.training``, ``job.seed`` and ``job.should_stop`` itself.
            Frozen arrays may be left out of what it returns.
        evaluate: ``evaluate(arrays)`` returns the number of held-out examples and their mean
            metrics; or None.
        roles: where an array is not what its dtype says (floats trainable, integers counters).
    """

    def __init__(
        self,
        *,
        name: str,
        initial: Callable[[int], Arrays],
        train: Callable[[dict[str, npt.NDArray[Any]], TrainingJob], Trained],
        evaluate: Callable[[dict[str, npt.NDArray[Any]]], tuple[int, Mapping[str, float]]] | None = None,
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        self._name = name
        self._initial = initial
        self._train = train
        self._evaluate = evaluate
        self._roles = dict(roles or {})

    @property
    def name(self) -> str:
        """The name under which plans ask for it."""
        return self._name

    def layout(self) -> Layout:
        """The arrays of ``initial``.

        Raises:
            ConfigError: nothing is trainable, or a dtype cannot travel.
        """
        return self._layout

    def initial(self, seed: int) -> Model:
        """A fresh model; the same seed gives the same model."""
        return Model.of(self.layout(), {name: np.asarray(array) for name, array in self._initial(seed).items()})

    def train(self, received: Model, job: TrainingJob) -> LocalResult:
        """Hand copies of the arrays to the site's own code and check what it returns.

        Raises:
            LayoutMismatch: ``received`` or the trained arrays are not of this task's layout.
            InvalidUpdate: a trained value is not finite, or the number of examples is negative.
        """
        counted, num_steps = counting_steps(job)
        arrays, num_examples, *rest = self._train(self._arrays(received), counted)
        unknown = sorted(arrays.keys() - {tensor.name for tensor in self.layout().tensors})
        if unknown:
            raise LayoutMismatch(f"task {self.name!r} returned an array {unknown[0]!r} that its initial model lacks")
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise InvalidUpdate(
                    f"task {self.name!r}: array {name!r} holds values that are not finite",
                    hint="lower the learning rate, or look for broken examples in the data",
                )
        if num_examples < 0:
            raise InvalidUpdate(f"task {self.name!r} trained on {num_examples} examples, expected 0 or more")
        return LocalResult(
            model=Model.of(self.layout(), arrays, received.frozen),
            num_examples=int(num_examples),
            num_steps=num_steps(),
            metrics=_numbers(rest[0] if rest else {}),
        )

    def evaluate(self, model: Model) -> Measurement:
        """What the site's own code measures on its held-out data; nothing if it has no such code."""
        arrays = self._arrays(model)
        num_examples, metrics = self._evaluate(arrays) if self._evaluate else (0, {})
        return Measurement(num_examples=int(num_examples), metrics=_numbers(metrics))

    @cached_property
    def _layout(self) -> Layout:
        arrays = {name: np.asarray(array) for name, array in self._initial(0).items()}
        unknown = sorted(self._roles.keys() - arrays.keys())
        if unknown:
            raise ConfigError(f"task {self.name!r} gives a role to {unknown[0]!r}, which is no array of its model")
        return layout_of(arrays, self._roles)

    def _arrays(self, model: Model) -> dict[str, npt.NDArray[Any]]:
        model.layout.require(self.layout(), f"task {self.name!r}")
        views = model.arrays()
        arrays: dict[str, npt.NDArray[Any]] = {}
        for tensor in self.layout().tensors:
            if tensor.role is Role.FROZEN:
                flat = np.frombuffer(model.frozen[tensor.name], tensor.dtype)
                arrays[tensor.name] = flat.reshape(tensor.shape).copy()
            else:
                arrays[tensor.name] = views[tensor.name].astype(tensor.dtype)
        return arrays


def _numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}
