"""Records as the messages that operators see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..privacy.secagg.roster import Roster
from ..protos.messages import Phase
from ..protos.v1 import operations_pb2
from ..protos.wire import PHASES
from .federation import Federation
from .feed import Happening
from .history import Participation, Round, Run, RunState
from .members import Member
from .registry import Standing

# Of one message: with metrics and reasons of the greatest size they are half of what a message may hold.
MAX_PARTICIPATIONS = 100


def run(fed: Federation, record: Run) -> operations_pb2.Run:
    """A run without its rounds."""
    number, last = fed.rounds.last_model(record.id) or (0, record.initial_sha256)
    return operations_pb2.Run(
        id=record.id,
        name=record.name,
        state=RunState.PAUSED if record.id in fed.held else record.state,
        reason=fed.held.get(record.id, record.reason),
        plan_json=record.plan.model_dump_json(),
        created_unix_seconds=record.created,
        round=number,
        initial_sha256=record.initial_sha256,
        last_sha256=last,
        best_sha256=record.best_sha256 or "",
    )


def rounds(fed: Federation, record: Run) -> Iterator[operations_pb2.Round]:
    """A run's rounds in order; those with very many participations in several messages of one number."""
    for round in fed.rounds.all(record.id):
        parts = [part for phase in Phase for part in fed.participations.in_phase(record.id, round.number, phase)]
        yield _round(round, parts[:MAX_PARTICIPATIONS])
        for start in range(MAX_PARTICIPATIONS, len(parts), MAX_PARTICIPATIONS):
            more = map(_participation, parts[start : start + MAX_PARTICIPATIONS])
            yield operations_pb2.Round(number=round.number, participations=more)


def happening(fed: Federation, record: Run, happened: Happening) -> operations_pb2.RunEvent:
    """An event of a run, with the run as it stands after it."""
    return operations_pb2.RunEvent(
        unix_seconds=happened.unix_seconds,
        name=happened.name,
        run=run(fed, record),
        round=happened.round,
        site=happened.site,
        detail=happened.detail,
        metrics=dict(happened.metrics),
    )


def member(fed: Federation, record: Member) -> operations_pb2.Site:
    """A member, with what its live session adds."""
    session = fed.sessions.get(record.name) if record.role == "site" else None
    standing = fed.registry.standing(record.name) if record.role == "site" else Standing()
    message = operations_pb2.Site(
        name=record.name,
        role=record.role,
        state=record.state,
        key_sha256=record.key_sha256,
        origin=record.origin,
        last_seen_unix_seconds=record.last_seen or 0.0,
        certificate_expires_unix_seconds=record.certificate_expires or 0.0,
        connected=session is not None,
        rejection_rate=standing.rejection_rate,
        rounds_judged=standing.rounds_judged,
        signing_key=record.signing_key,
    )
    if session is not None:
        message.last_seen_unix_seconds = session.last_seen
        message.tasks.extend(offer.name for offer in session.hello.tasks)
        message.version = session.hello.version
        message.clock_skew_seconds = session.hello.unix_seconds - session.since
        message.working_on = str(session.working_on) if session.working_on else ""
    return message


def roster(record: Roster) -> operations_pb2.Roster:
    """A roster, as it was signed."""
    return operations_pb2.Roster(version=record.version, signed=record.to_bytes())


def _round(round: Round, parts: Iterable[Participation]) -> operations_pb2.Round:
    return operations_pb2.Round(
        number=round.number,
        state=round.state,
        reason=round.reason,
        model_sha256=round.model_sha256 or "",
        started_unix_seconds=round.started,
        finished_unix_seconds=round.finished or 0.0,
        training_metrics=dict(round.training_metrics),
        evaluation_metrics=dict(round.evaluation_metrics),
        participations=map(_participation, parts),
    )


def _participation(part: Participation) -> operations_pb2.Participation:
    return operations_pb2.Participation(
        site=part.site,
        phase=PHASES[part.phase],
        verdict=part.verdict,
        code=part.code,
        reason=part.reason,
        num_examples=part.num_examples,
        metrics=dict(part.metrics),
        weight=part.weight,
        score=part.score,
    )
