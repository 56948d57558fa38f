"""A malicious site: an ordinary task whose updates an attack rewrites.

Nothing in the SDK or the server knows of it. The attacker's site is enrolled, has a certificate,
trains and uploads like any other; only what its task returns is not what it learned. In its
``site.toml`` stands a function of one's own that returns ``Malicious(…)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ...client_sdk.schedule import counting_steps
from ...client_sdk.task import LocalResult, Measurement, Task, TrainingJob, job_seed
from ...errors import ConfigError
from ...layout import Layout
from ...modelfile import Model
from .knowledge import Attack

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The global model at the start of a round, and the step that led to it."""

    run: str
    round: int
    received_D: Vector
    last_D: Vector | None


class Malicious:
    """Trains like ``task`` and sends what ``attack`` makes of it.

    Buffers, counters and metrics stay those of the honest training, so that only the update gives
    the attacker away; its evaluations measure nothing, so that no lie reaches the run's figures.

    Args:
        task: what an honest site would train, on the attacker's own data. For a backdoor or
            flipped labels the data are poisoned, which is the business of whoever makes the task.
        attack: what to send instead; None sends the honest update.
        colluders: tasks on data that the attacker knows, such as other sites' own. They are trained
            in every round to learn, or to guess, the honest updates; without any, the attacker's
            own update stands for them.
        num_attackers: how many malicious sites act together; each is a site of its own.
        index: which of them this one is, from 0.
        num_updates: n, all updates of a round; None means one per colluder and attacker.
        claims: how many examples the update is said to rest on; None says the truth.

    Raises:
        ConfigError: ``index`` is not one of the attackers.
    """

    def __init__(
        self,
        task: Task,
        attack: Attack | None = None,
        *,
        colluders: Sequence[Task] = (),
        num_attackers: int = 1,
        index: int = 0,
        num_updates: int | None = None,
        claims: int | None = None,
    ) -> None:
        if not 0 <= index < num_attackers:
            raise ConfigError(f"attacker {index} of {num_attackers} does not exist, expected 0 to {num_attackers - 1}")
        self._task = task
        self._attack = attack
        self._colluders = tuple(colluders)
        self._num_attackers = num_attackers
        self._index = index
        self._num_updates = num_updates or max(len(self._colluders), 1) + num_attackers
        self._claims = claims
        self._seen: _Seen | None = None

    @property
    def name(self) -> str:
        """The name of the honest task."""
        return self._task.name

    def layout(self) -> Layout:
        """The tensors of the honest task's model."""
        return self._task.layout()

    def initial(self, seed: int) -> Model:
        """The honest task's fresh model."""
        return self._task.initial(seed)

    def train(self, received: Model, job: TrainingJob) -> LocalResult:
        """Train honestly, here and as the colluders, then put the attack's update in its place.

        Raises:
            ConfigError: the attack needs what the attacker does not know.
        """
        last_D = self._last_step(received, job)
        overheard, num_steps = counting_steps(job)
        own = self._task.train(received, overheard)
        model = own.model
        if self._attack is not None:
            own_D = model.trainable_D - received.trainable_D
            honest = self._guess(received, overheard, num_steps()) or [own_D]
            rows_AD = self._attack(
                honest,
                self._num_attackers,
                self._num_updates,
                # The same at every attacker, so that all draw the same rows and each sends its own.
                job_seed(0, job.round, job.run),
                own_D=own_D,
                last_D=last_D,
            )
            with np.errstate(over="ignore", invalid="ignore"):
                model = replace(model, trainable_D=received.trainable_D + rows_AD[self._index])
        claims = own.num_examples if self._claims is None else self._claims
        return replace(own, model=model, num_examples=claims)

    def evaluate(self, model: Model) -> Measurement:
        """Nothing, on no examples."""
        self.layout().require(model.layout, f"task {self.name!r}")
        return Measurement(num_examples=0, metrics={})

    def _guess(self, received: Model, job: TrainingJob, steps_before: int) -> list[Vector]:
        """The update of each colluder, whose steps count on from the attacker's own: progress keeps a round alive."""
        updates = []
        for number, colluder in enumerate(self._colluders):
            seed = job_seed(job.seed, job.round, f"colluder {number}")
            report = partial(_report_beyond, job.report, steps_before)
            result = colluder.train(received, replace(job, seed=seed, checkpoints=None, report=report))
            steps_before += result.num_steps
            updates.append(result.model.trainable_D - received.trainable_D)
        return updates

    def _last_step(self, received: Model, job: TrainingJob) -> Vector | None:
        """How the global model moved in the round before; None in the first round seen."""
        seen = self._seen
        if seen is None or seen.run != job.run:
            last_D = None
        elif seen.round == job.round:
            return seen.last_D  # the same round again, from the same model
        else:
            last_D = received.trainable_D - seen.received_D
        self._seen = _Seen(job.run, job.round, received.trainable_D.copy(), last_D)
        return last_D


def _report_beyond(report: Callable[[int], None], steps_before: int, steps: int) -> None:
    report(steps_before + steps)
