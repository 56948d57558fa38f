"""A task whose model is a torch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from torch.utils.data import default_collate

from ..errors import ConfigError
from ..layout import Layout
from ..modelfile import Model
from .schedule import counting_steps
from .task import LocalResult, Measurement, TrainingJob
from .torch_checkpoint import Checkpoint
from .torch_module import layout_of_module, load_model, model_of_module
from .torch_random import isolated_randomness
from .torch_trainer import Batches, Collate, Examples, Loss, mean_loss, mode, train_module

BUILD_SEED = 0

Train = Callable[[nn.Module, Examples, TrainingJob], tuple[int, Mapping[str, float]]]


@dataclass(frozen=True, kw_only=True)
class TorchTask:
    """Wraps the model, loss and data a site already has.

    ::

        task = TorchTask(
            name="heart",
            model=lambda: nn.Linear(13, 1),
            loss=lambda model, batch: bce_with_logits(model(batch[0]).squeeze(1), batch[1]),
            train_data=lambda: TensorDataset(x, y),
            test_data=lambda: TensorDataset(x_test, y_test),
        )

    The SDK owns the training loop: order of the examples, optimizer, proximal term, stopping and
    checkpoints follow the plan. The same job on the same machine gives the same bits. The last
    batch of an epoch may be small, down to one example, which BatchNorm refuses to train on:
    prefer GroupNorm, or plan a batch size that leaves more than one.

    Attributes:
        name: the name under which plans ask for the task.
        model: builds the module, always with the same tensors.
        loss: ``loss(model, batch)``, the scalar mean over the batch, with a gradient.
        train_data: gives the examples to train on: a torch ``Dataset`` with a length, or any sequence.
        test_data: gives held-out examples, or None.
        metrics: ``metrics(model, batches)`` over the *whole* held-out set, in evaluation mode and
            without gradients. ``batches`` can be iterated more than once. Returns a number for
            each metric; a metric that is undefined here (an AUC on one class) is left out, and
            sites that leave it out do not count in its mean. The mean loss is always added as "loss".
        collate: makes a batch of a list of examples.
        train_function: replaces the SDK's loop: ``train_function(model, data, job)`` trains the
            module in place, calls ``job.report(steps)`` as it goes (the last value is the number of
            steps) and returns the number of examples and the metrics. It has to honour
            ``job.training`` (the proximal term too), ``job.should_stop`` and ``job.checkpoints`` itself.
        device: where the model trains, such as "cpu" or "cuda:0".
        evaluation_batch_size: examples in one evaluation batch.
        checkpoint_seconds: how often training is saved inside a round, if the job names a folder.
    """

    name: str
    model: Callable[[], nn.Module]
    loss: Loss
    train_data: Callable[[], Examples]
    test_data: Callable[[], Examples | None] = lambda: None
    metrics: Callable[[nn.Module, Batches], Mapping[str, float]] | None = None
    collate: Collate = default_collate
    train_function: Train | None = None
    device: str = "cpu"
    evaluation_batch_size: int = 256
    checkpoint_seconds: float = 60.0

    def layout(self) -> Layout:
        """The module's tensors.

        Raises:
            ConfigError: the module has nothing to train or a tensor that cannot travel.
        """
        return self._layout

    def initial(self, seed: int) -> Model:
        """The module as built right after seeding every generator with ``seed``."""
        return model_of_module(self._build(seed), self.layout())

    def train(self, received: Model, job: TrainingJob) -> LocalResult:
        """Train as ``job.training`` says.

        The weight is the number of the site's examples, also after partial work; without any
        example or any step it is 0 and the model comes back as it was received.

        Raises:
            LayoutMismatch: ``received`` is not a model of this task.
            InvalidUpdate: a loss or a trained value is not finite.
            ConfigError: the data has no length, the loss is no scalar, the device is missing.
            StoreError: a checkpoint could not be written.
        """
        module = self._loaded(received)
        examples = _sized(self.train_data(), self.name)
        if not len(examples):
            return LocalResult(model=received, num_examples=0, num_steps=0)
        if self.train_function is not None:
            return self._train_by_function(self.train_function, module, examples, received, job)
        data = Batches(examples, job.training.batch_size, self.collate, self._device)
        checkpoint = Checkpoint.of(job, received, len(examples))
        progress = train_module(module, data, job, self.loss, checkpoint, self.checkpoint_seconds)
        trained = model_of_module(module, self.layout(), received) if progress.num_steps else received
        if checkpoint:
            checkpoint.discard()
        return LocalResult(
            model=trained,
            num_examples=len(examples) if progress.num_steps else 0,
            num_steps=progress.num_steps,
            metrics={"loss": progress.loss_sum / progress.num_seen} if progress.num_seen else {},
        )

    def evaluate(self, model: Model) -> Measurement:
        """The mean loss and the task's own metrics on the held-out examples.

        Raises:
            LayoutMismatch: ``model`` is not a model of this task.
            ConfigError: a metric is called "loss", or the data has no length.
        """
        examples = self.test_data()
        if examples is None or not len(_sized(examples, self.name)):
            return Measurement(num_examples=0, metrics={})
        module = self._loaded(model)
        batches = Batches(examples, self.evaluation_batch_size, self.collate, self._device)
        with isolated_randomness(BUILD_SEED, self._device), mode(module, training=False), torch.no_grad():
            measured = {"loss": mean_loss(module, batches, self.loss)}
            own = self.metrics(module, batches) if self.metrics else {}
        if "loss" in own:
            raise ConfigError(f"task {self.name!r} measures 'loss' itself", hint="give the metric another name")
        measured.update({name: float(value) for name, value in own.items()})
        return Measurement(num_examples=len(examples), metrics=measured)

    def _train_by_function(
        self, train: Train, module: nn.Module, examples: Examples, received: Model, job: TrainingJob
    ) -> LocalResult:
        counted, num_steps = counting_steps(job)
        with isolated_randomness(job.seed, self._device), mode(module, training=True):
            num_examples, metrics = train(module, examples, counted)
        return LocalResult(
            model=model_of_module(module, self.layout(), received),
            num_examples=num_examples,
            num_steps=num_steps(),
            metrics={name: float(value) for name, value in metrics.items()},
        )

    @cached_property
    def _layout(self) -> Layout:
        return layout_of_module(self._build(BUILD_SEED))

    @cached_property
    def _device(self) -> torch.device:
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise ConfigError(f"task {self.name!r} asks for the unknown device {self.device!r}") from None
        if device.type not in {"cpu", "cuda"}:
            raise ConfigError(f"task {self.name!r} asks for the device {self.device!r}, expected cpu or cuda")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError(
                f"task {self.name!r} asks for {self.device!r}, but this machine offers no CUDA device",
                hint='set device = "cpu"',
            )
        return device

    def _build(self, seed: int) -> nn.Module:
        with isolated_randomness(seed, torch.device("cpu")):
            return self.model()

    def _loaded(self, model: Model) -> nn.Module:
        model.layout.require(self.layout(), f"task {self.name!r}")
        module = self._build(BUILD_SEED).to(self._device)
        load_model(module, model)
        return module


def _sized(examples: Examples, task: str) -> Examples:
    if not hasattr(examples, "__len__"):
        raise ConfigError(
            f"the data of task {task!r} is a {type(examples).__name__}, which has no length",
            hint="give a map-style Dataset or a list",
        )
    return examples
