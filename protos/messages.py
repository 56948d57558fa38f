"""What server and site say to each other, as frozen values. ``wire`` turns them into bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..plan import LocalTraining, Protection


class Phase(StrEnum):
    """What a site is asked to do: the first two with a model, the third with its records."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    QUERY = "query"


class Outcome(StrEnum):
    """How a piece of work ended for a site."""

    COUNTED = "counted"
    REJECTED = "rejected"
    LATE = "late"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, order=True)
class Work:
    """One phase of one round of one run; which site does it is known from its certificate.

    A query is a run of one round.
    """

    run: str
    round: int
    phase: Phase

    def __str__(self) -> str:
        return f"run {self.run}, round {self.round}, {self.phase}"


@dataclass(frozen=True, slots=True)
class TaskOffer:
    """A task whose code is installed at a site."""

    name: str
    code_sha256: str


@dataclass(frozen=True, slots=True)
class Hello:
    """A site's first words."""

    version: str
    tasks: tuple[TaskOffer, ...]
    unix_seconds: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life; ``progress`` counts steps and bytes, and only its growth means anything."""

    work: Work | None
    progress: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a site will not or cannot do a piece of work; ``code`` names an error class."""

    work: Work
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics of one model on a site's held-out data, means over ``num_examples``."""

    work: Work
    model_sha256: str
    num_examples: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SecureMessage:
    """A message of a piece of work's secure sum, from either side; its bytes are ``privacy.secagg``'s.

    ``words`` are the masked words that it is about, of a query.
    """

    work: Work
    body: bytes = field(repr=False)
    words: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer to Hello."""

    version: str
    federation: str
    unix_seconds: float
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """A piece of work for a site, with all that the site needs to decide whether to do it."""

    work: Work
    run_name: str
    task: str
    model_sha256: str
    model_bytes: int
    layout_sha256: str
    training: LocalTraining
    cohort_size: int
    rounds: int
    deadline_seconds: float
    seed: int
    local_buffers: bool = False
    protection: Protection = "none"
    examples_per_weight: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """The work is over for this site."""

    work: Work
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """Questions about a site's records, with all that the site needs to decide whether to answer."""

    work: Work
    query_json: str
    cohort_size: int


SiteMessage = Hello | Heartbeat | Refusal | Evaluation | SecureMessage
ServerMessage = Welcome | Assignment | Release | SecureMessage | Question


@dataclass(frozen=True, slots=True)
class UploadHeader:
    """What an upload claims to be. Its bytes are checked against every one of these words.

    Under protection they are masked words, and ``masked`` is the site's signed message about them.
    """

    run: str
    round: int
    model_sha256: str
    layout_sha256: str
    num_bytes: int
    sha256: str
    num_examples: int
    num_steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    masked: bytes = field(default=b"", repr=False)

    @property
    def work(self) -> Work:
        """The piece of work that the update is the result of."""
        return Work(self.run, self.round, Phase.TRAIN)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The server's recorded decision about an update; ``code`` names an error class if refused."""

    accepted: bool
    code: str = ""
    reason: str = ""
