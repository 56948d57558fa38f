"""Which examples each step trains on, and when local training ends.

Pure functions of seed and step, so that a job that starts again in the middle sees the same
examples in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..plan import LocalTraining
from .task import TrainingJob

Indices = npt.NDArray[np.int64]


def planned_steps(training: LocalTraining, num_examples: int) -> int:
    """How many optimizer steps a plan asks of a site with this many examples; 0 without examples."""
    if not num_examples:
        return 0
    if training.steps is not None:
        return training.steps
    return (training.epochs or 0) * _steps_per_epoch(num_examples, training.batch_size)


def epoch_order(seed: int, epoch: int, num_examples: int) -> Indices:
    """The order of the examples in one epoch, from 0."""
    return np.random.default_rng([seed, epoch]).permutation(num_examples)


def batches(seed: int, num_examples: int, batch_size: int, first: int, last: int) -> Iterator[tuple[int, Indices]]:
    """Steps ``first`` to ``last`` (exclusive) with the indices of their examples.

    Every epoch visits every example once; its last batch may be smaller.
    """
    per_epoch = _steps_per_epoch(num_examples, batch_size)
    shuffled, order = -1, np.empty(0, np.int64)
    for step in range(first, last):
        epoch, position = divmod(step, per_epoch)
        if epoch != shuffled:
            shuffled, order = epoch, epoch_order(seed, epoch, num_examples)
        yield step, order[position * batch_size : (position + 1) * batch_size]


def step_seed(seed: int, step: int) -> int:
    """The seed of everything random inside one step: 63 bits of SHA-256."""
    text = f"foedus/step-seed/{seed}/{step}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def must_stop(job: TrainingJob, elapsed_seconds: float) -> bool:
    """Whether the job is to return what it has: it was asked to, or its time is used up."""
    limit = job.training.max_seconds
    return job.should_stop() or (limit is not None and elapsed_seconds >= limit)


def counting_steps(job: TrainingJob) -> tuple[TrainingJob, Callable[[], int]]:
    """The job with its reports overheard, and how many steps were reported last (1 if none were)."""
    reported = 1

    def report(steps: int) -> None:
        nonlocal reported
        reported = steps
        job.report(steps)

    return replace(job, report=report), lambda: reported


def _steps_per_epoch(num_examples: int, batch_size: int) -> int:
    return -(-num_examples // batch_size)
