"""What a site knows how to train: the contract between the SDK and a user's own code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..clock import Clock, SystemClock
from ..layout import Layout
from ..modelfile import Model
from ..plan import LocalTraining


def _no_report(_steps: int) -> None: ...


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One round's local training.

    Attributes:
        run: the run's id.
        round: the round, from 1.
        site: this site's name.
        training: how long, with which optimizer, how strong the proximal term.
        seed: everything random in this job derives from it; the same job has the same seed again.
        checkpoints: a folder that outlives the process, for resuming inside the round; or None.
        report: called with the number of steps done so far; progress keeps the round alive.
        should_stop: asked between steps; once true, the task returns what it has (partial work).
        clock: what ``training.max_seconds`` is measured with.
    """

    run: str
    round: int
    site: str
    training: LocalTraining
    seed: int
    checkpoints: Path | None = None
    report: Callable[[int], None] = _no_report
    should_stop: Callable[[], bool] = _never
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalResult:
    """What local training produced: the *trained* model, not the difference.

    Attributes:
        model: same layout as the model received.
        num_examples: how many of the site's examples the training rests on (its weight).
        num_steps: optimizer steps taken.
        metrics: means over the examples, by name, such as {"loss": 0.4}.
    """

    model: Model
    num_examples: int
    num_steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Metrics of one model on the site's held-out data: means over ``num_examples``."""

    num_examples: int
    metrics: Mapping[str, float]


class Task(Protocol):
    """A named piece of training code that lives at the site and never crosses the wire."""

    @property
    def name(self) -> str:
        """The name under which plans ask for it."""
        ...

    def layout(self) -> Layout:
        """The tensors of its model."""
        ...

    def initial(self, seed: int) -> Model:
        """A fresh model; the same seed gives the same model."""
        ...

    def train(self, received: Model, job: TrainingJob) -> LocalResult:
        """Train from ``received``, which must not be changed."""
        ...

    def evaluate(self, model: Model) -> Measurement:
        """Measure ``model`` on held-out data."""
        ...


def job_seed(run_seed: int, round: int, site: str) -> int:
    """The seed of one site's work in one round: 63 bits of SHA-256 over all three."""
    text = f"foedus/job-seed/{run_seed}/{round}/{site}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1
