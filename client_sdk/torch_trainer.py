"""The training loop of torch models: seeded, resumable, able to stop between any two steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from ..errors import ConfigError, InvalidUpdate
from ..plan import LocalTraining
from .schedule import batches, must_stop, planned_steps, step_seed
from .task import TrainingJob
from .torch_checkpoint import Checkpoint, Progress
from .torch_random import isolated_randomness

Loss = Callable[[Any, Any], Tensor]
Collate = Callable[[list[Any]], Any]


class Examples(Protocol):
    """A torch ``Dataset`` with a length, or any sequence."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Batches:
    """Examples in their own order, collated and on the device; can be iterated again and again."""

    examples: Examples
    batch_size: int
    collate: Collate
    device: torch.device

    def __len__(self) -> int:
        return -(-len(self.examples) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        total = len(self.examples)
        for start in range(0, total, self.batch_size):
            yield self.batch(range(start, min(start + self.batch_size, total)))

    def batch(self, indices: Sequence[int]) -> Any:
        """The examples with these indices as one batch."""
        return on_device(self.collate([self.examples[index] for index in indices]), self.device)


def on_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it, through tuples, lists and mappings, on ``device``."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: on_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(on_device(value, device) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(on_device(value, device) for value in batch)
    return batch


@contextmanager
def mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Switch the module to training or evaluation, and every part back to what it was afterwards."""
    before = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, was_training in before.items():
            part.training = was_training


def make_optimizer(parameters: Sequence[nn.Parameter], training: LocalTraining) -> Optimizer:
    """The plan's local optimizer."""
    if training.optimizer == "sgd":
        return SGD(parameters, training.learning_rate, training.momentum, weight_decay=training.weight_decay)
    kind = Adam if training.optimizer == "adam" else AdamW
    return kind(parameters, training.learning_rate, weight_decay=training.weight_decay)


def add_proximal_gradient(parameters: Sequence[Tensor], anchors: Sequence[Tensor], mu: float) -> None:
    """Add μ(w − w_received), the gradient of μ/2·‖w − w_received‖² (Li et al. 2020, eq. 2), to each ``grad``.

    A parameter that the batch's loss did not reach has no gradient of its own and is pulled too.
    """
    with torch.no_grad():
        for parameter, anchor in zip(parameters, anchors, strict=True):
            pull = (parameter - anchor).mul_(mu)
            parameter.grad = pull if parameter.grad is None else pull.add_(parameter.grad)


def train_module(
    module: nn.Module, data: Batches, job: TrainingJob, loss: Loss, checkpoint: Checkpoint | None, every_seconds: float
) -> Progress:
    """Train the module in place as the job's plan says, from the checkpoint if it has one.

    The process's random generators are seeded anew for every step and put back after it.
    Returns early, with the true number of steps, when the job is asked to stop or out of time.

    Raises:
        InvalidUpdate: the loss of a step is not finite.
        ConfigError: the loss is not a scalar.
        StoreError: a checkpoint could not be written.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    # Copies, taken before any step and before a checkpoint moves the live weights.
    anchors = [parameter.detach().clone() for parameter in parameters] if job.training.proximal_mu else []
    optimizer = make_optimizer(parameters, job.training)
    progress = checkpoint.restore(module, optimizer) if checkpoint else Progress()
    started = job.clock.monotonic() - progress.elapsed_seconds
    saved = job.clock.monotonic()
    num_examples = len(data.examples)
    last = planned_steps(job.training, num_examples)
    schedule = batches(job.seed, num_examples, data.batch_size, progress.num_steps, last)
    with mode(module, training=True):
        for step, indices in schedule:
            if must_stop(job, job.clock.monotonic() - started):
                break
            with isolated_randomness(step_seed(job.seed, step), data.device):
                loss_value = _step(module, data.batch(indices.tolist()), loss, optimizer, step, job, anchors)
            now = job.clock.monotonic()
            progress = Progress(
                step + 1, progress.num_seen + len(indices), progress.loss_sum + loss_value * len(indices), now - started
            )
            if checkpoint and now - saved >= every_seconds and progress.num_steps < last:
                checkpoint.save(module, optimizer, progress)
                saved = now
            job.report(progress.num_steps)
    return progress


def _step(
    module: nn.Module,
    batch: Any,
    loss: Loss,
    optimizer: Optimizer,
    step: int,
    job: TrainingJob,
    anchors: Sequence[Tensor],
) -> float:
    optimizer.zero_grad(set_to_none=True)
    value = loss(module, batch)
    loss_value = _checked(value, step, job)
    value.backward()  # type: ignore[no-untyped-call]
    if job.training.proximal_mu:
        add_proximal_gradient(optimizer.param_groups[0]["params"], anchors, job.training.proximal_mu)
    optimizer.step()
    return loss_value


def mean_loss(module: nn.Module, data: Batches, loss: Loss) -> float:
    """The mean of the loss over the examples, without gradients, in the module's present mode."""
    total = 0.0
    remaining = len(data.examples)
    with torch.no_grad():
        for batch in data:
            size = min(data.batch_size, remaining)
            total += float(loss(module, batch)) * size
            remaining -= size
    return total / len(data.examples)


def _checked(value: Tensor, step: int, job: TrainingJob) -> float:
    if value.numel() != 1:
        raise ConfigError(
            f"the loss has shape {tuple(value.shape)}, expected one number", hint="return the mean over the batch"
        )
    number = float(value.detach())
    if not math.isfinite(number):
        raise InvalidUpdate(
            f"the training loss is {number} at step {step + 1} of round {job.round}, expected a finite number",
            hint="lower the learning rate, or look for broken examples in the data",
        )
    return number
