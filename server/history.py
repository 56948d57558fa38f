"""What the database remembers of runs, rounds and participations, as values.

States are monotone and terminal ones final; ``run_records`` and ``round_records`` see to that.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ..plan import Plan
from ..protos.messages import Phase


class RunState(StrEnum):
    """queued → running ⇄ paused → finished, failed or stopped."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return self in (RunState.FINISHED, RunState.FAILED, RunState.STOPPED)


ALIVE = (RunState.QUEUED, RunState.RUNNING, RunState.PAUSED)


class RoundState(StrEnum):
    """collecting → closed → committed → evaluated."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    COMMITTED = "committed"
    EVALUATED = "evaluated"


class Verdict(StrEnum):
    """What became of one site in one phase of a round."""

    ASKED = "asked"
    ACCEPTED = "accepted"
    REJECTED = "rejected"  # the server would not take what the site sent
    REFUSED = "refused"  # the site would not or could not do it
    ABSENT = "absent"  # no sign of life until the deadline
    LATE = "late"  # came after the round had closed


@dataclass(frozen=True, slots=True)
class Run:
    """A run as recorded."""

    id: str
    name: str
    state: RunState
    reason: str
    plan: Plan
    created: float
    initial_sha256: str
    best_sha256: str | None
    best_value: float | None


@dataclass(frozen=True, slots=True)
class Round:
    """A round as recorded.

    ``target`` updates close it at once, ``quorum`` of them suffice; the cohort was drawn from the
    ``available`` sites.
    """

    run: str
    number: int
    state: RoundState
    reason: str
    attempt: int
    target: int
    quorum: int
    available: frozenset[str]
    base_sha256: str
    base_optimizer_sha256: str | None
    started: float
    finished: float | None
    model_sha256: str | None
    optimizer_sha256: str | None
    base_aggregator_sha256: str | None
    aggregator_sha256: str | None
    training_metrics: Mapping[str, float]
    evaluation_metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Participation:
    """One site in one phase of one round.

    ``sha256`` names the update file that was accepted. Once it is combined, ``weight`` is what it
    weighed and ``score`` how far the rule trusted it, smaller being more; None where the rule has
    no such number.
    """

    site: str
    phase: Phase
    verdict: Verdict
    code: str
    reason: str
    num_examples: int
    num_steps: int
    sha256: str | None
    metrics: Mapping[str, float]
    weight: float | None
    score: float | None


# The code of an update that was received whole and that the aggregation rule left out.
LEFT_OUT = "LeftOut"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the aggregation rule made of one site's update; ``reason`` is empty for one that takes part."""

    round: int  # the one that the update was made for
    weight: float | None
    score: float | None
    reason: str = ""


@lru_cache(maxsize=64)
def _plan(text: str) -> Plan:
    return Plan.model_validate_json(text)


def run_from(row: sqlite3.Row) -> Run:
    """A row of the table runs."""
    return Run(
        id=row["id"],
        name=row["name"],
        state=RunState(row["state"]),
        reason=row["reason"],
        plan=_plan(row["plan_json"]),
        created=row["created"],
        initial_sha256=row["initial_sha256"],
        best_sha256=row["best_sha256"],
        best_value=row["best_value"],
    )


def round_from(row: sqlite3.Row) -> Round:
    """A row of the table rounds."""
    values = {key: row[key] for key in row.keys()}  # noqa: SIM118  (a Row iterates over its values)
    values["state"] = RoundState(row["state"])
    values["available"] = frozenset(json.loads(row["available"]))
    values["training_metrics"] = json.loads(row["training_metrics"])
    values["evaluation_metrics"] = json.loads(row["evaluation_metrics"])
    return Round(**values)


def participation_from(row: sqlite3.Row) -> Participation:
    """A row of the table participations."""
    return Participation(
        site=row["site"],
        phase=Phase(row["phase"]),
        verdict=Verdict(row["verdict"]),
        code=row["code"],
        reason=row["reason"],
        num_examples=row["num_examples"],
        num_steps=row["num_steps"],
        sha256=row["sha256"],
        metrics=json.loads(row["metrics"]),
        weight=row["weight"],
        score=row["score"],
    )
