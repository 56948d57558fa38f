"""The only place where protobuf meets our types: every field is bounded and checked here.

Decoding raises ProtocolError and nothing else, whatever the bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ..errors import ProtocolError
from ..plan import PROTECTIONS, LocalTraining, Protection
from .channel import SECURE_BYTES
from .messages import (
    Assignment,
    Evaluation,
    Heartbeat,
    Hello,
    Outcome,
    Phase,
    Question,
    Receipt,
    Refusal,
    Release,
    SecureMessage,
    ServerMessage,
    SiteMessage,
    TaskOffer,
    UploadHeader,
    Welcome,
    Work,
)
from .v1 import common_pb2, session_pb2, transfer_pb2

MAX_ROUND = 1_000_000
MAX_METRICS = 64
MAX_TASKS = 256
MAX_REASON_LENGTH = 500
MAX_EXAMPLES = 1 << 53
MAX_MASKED_BYTES = 256
MAX_WORDS_BYTES = 1 << 20
MAX_QUERY_BYTES = 256 << 10


_DIGEST = re.compile(r"[0-9a-f]{64}")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

PHASES = {
    Phase.TRAIN: common_pb2.PHASE_TRAIN,
    Phase.EVALUATE: common_pb2.PHASE_EVALUATE,
    Phase.QUERY: common_pb2.PHASE_QUERY,
}
_PHASES_BACK = {number: phase for phase, number in PHASES.items()}
_OUTCOMES = {
    Outcome.COUNTED: session_pb2.OUTCOME_COUNTED,
    Outcome.REJECTED: session_pb2.OUTCOME_REJECTED,
    Outcome.LATE: session_pb2.OUTCOME_LATE,
    Outcome.CANCELLED: session_pb2.OUTCOME_CANCELLED,
}
_OUTCOMES_BACK = {number: outcome for outcome, number in _OUTCOMES.items()}


# Work


def work_to_pb(work: Work) -> common_pb2.Work:
    """A piece of work as its message."""
    return common_pb2.Work(run=work.run, round=work.round, phase=PHASES[work.phase])


def work_from_pb(message: common_pb2.Work) -> Work:
    """The piece of work a message names."""
    phase = _PHASES_BACK.get(message.phase)
    if phase is None:
        raise ProtocolError(f"phase {message.phase} is unknown, expected train, evaluate or query")
    return Work(identifier(message.run, "run"), _round(message.round), phase)


# The session stream


def site_message_to_pb(message: SiteMessage) -> session_pb2.SiteMessage:
    """What a site says, as its message."""
    match message:
        case Hello():
            offers = [session_pb2.TaskOffer(name=t.name, code_sha256=t.code_sha256) for t in message.tasks]
            hello = session_pb2.Hello(version=message.version, tasks=offers, unix_seconds=message.unix_seconds)
            return session_pb2.SiteMessage(hello=hello)
        case Heartbeat():
            work = work_to_pb(message.work) if message.work else None
            return session_pb2.SiteMessage(heartbeat=session_pb2.Heartbeat(work=work, progress=message.progress))
        case Refusal():
            refusal = session_pb2.Refusal(
                work=work_to_pb(message.work), code=message.code, reason=message.reason[:MAX_REASON_LENGTH]
            )
            return session_pb2.SiteMessage(refusal=refusal)
        case Evaluation():
            evaluation = session_pb2.Evaluation(
                work=work_to_pb(message.work),
                model_sha256=message.model_sha256,
                num_examples=message.num_examples,
                metrics=dict(message.metrics),
            )
            return session_pb2.SiteMessage(evaluation=evaluation)
        case SecureMessage():
            return session_pb2.SiteMessage(secure=_secure_to_pb(message))


def site_message_from_pb(message: session_pb2.SiteMessage) -> SiteMessage:
    """What a site said.

    Raises:
        ProtocolError: a field is missing or out of its bounds.
    """
    match message.WhichOneof("body"):
        case "hello":
            return _hello(message.hello)
        case "heartbeat":
            beat = message.heartbeat
            return Heartbeat(work_from_pb(beat.work) if beat.HasField("work") else None, beat.progress)
        case "refusal":
            refusal = message.refusal
            code = identifier(refusal.code, "refusal code")
            return Refusal(work_from_pb(refusal.work), code, printable(refusal.reason))
        case "evaluation":
            evaluation = message.evaluation
            return Evaluation(
                work_from_pb(evaluation.work),
                digest(evaluation.model_sha256, "model_sha256"),
                _examples(evaluation.num_examples),
                metrics(evaluation.metrics),
            )
        case "secure":
            return _secure(message.secure)
        case _:
            raise ProtocolError("the site sent an empty message")


def server_message_to_pb(message: ServerMessage) -> session_pb2.ServerMessage:
    """What the server says, as its message."""
    match message:
        case Welcome():
            welcome = session_pb2.Welcome(
                version=message.version,
                federation=message.federation,
                unix_seconds=message.unix_seconds,
                heartbeat_seconds=message.heartbeat_seconds,
            )
            return session_pb2.ServerMessage(welcome=welcome)
        case Assignment():
            assignment = session_pb2.Assignment(
                work=work_to_pb(message.work),
                run_name=message.run_name,
                task=message.task,
                model_sha256=message.model_sha256,
                model_bytes=message.model_bytes,
                layout_sha256=message.layout_sha256,
                training=_training_to_pb(message.training),
                cohort_size=message.cohort_size,
                rounds=message.rounds,
                deadline_seconds=message.deadline_seconds,
                seed=message.seed,
                local_buffers=message.local_buffers,
                protection=message.protection,
                examples_per_weight=message.examples_per_weight,
            )
            return session_pb2.ServerMessage(assignment=assignment)
        case Release():
            release = session_pb2.Release(
                work=work_to_pb(message.work), outcome=_OUTCOMES[message.outcome], reason=message.reason
            )
            return session_pb2.ServerMessage(release=release)
        case SecureMessage():
            return session_pb2.ServerMessage(secure=_secure_to_pb(message))
        case Question():
            question = session_pb2.Question(
                work=work_to_pb(message.work), query_json=message.query_json, cohort_size=message.cohort_size
            )
            return session_pb2.ServerMessage(question=question)


def server_message_from_pb(message: session_pb2.ServerMessage) -> ServerMessage:
    """What the server said.

    Raises:
        ProtocolError: a field is missing or out of its bounds.
    """
    match message.WhichOneof("body"):
        case "welcome":
            welcome = message.welcome
            beat = welcome.heartbeat_seconds
            if not 0 < beat <= 3600:
                raise ProtocolError(f"the server asks for a heartbeat every {beat} s, expected 0 to 3600")
            return Welcome(printable(welcome.version), printable(welcome.federation), welcome.unix_seconds, beat)
        case "assignment":
            return _assignment(message.assignment)
        case "release":
            release = message.release
            outcome = _OUTCOMES_BACK.get(release.outcome)
            if outcome is None:
                raise ProtocolError(f"outcome {release.outcome} is unknown")
            return Release(work_from_pb(release.work), outcome, printable(release.reason))
        case "secure":
            return _secure(message.secure)
        case "question":
            return _question(message.question)
        case _:
            raise ProtocolError("the server sent an empty message")


# The transfer streams


def upload_header_to_pb(header: UploadHeader) -> transfer_pb2.UploadHeader:
    """An upload's header as its message."""
    return transfer_pb2.UploadHeader(
        run=header.run,
        round=header.round,
        model_sha256=header.model_sha256,
        layout_sha256=header.layout_sha256,
        num_bytes=header.num_bytes,
        sha256=header.sha256,
        num_examples=header.num_examples,
        num_steps=header.num_steps,
        metrics=dict(header.metrics),
        masked=header.masked,
    )


def upload_header_from_pb(message: transfer_pb2.UploadHeader) -> UploadHeader:
    """An upload's header.

    Raises:
        ProtocolError: a field is missing or out of its bounds.
    """
    return UploadHeader(
        run=identifier(message.run, "run"),
        round=_round(message.round),
        model_sha256=digest(message.model_sha256, "model_sha256"),
        layout_sha256=digest(message.layout_sha256, "layout_sha256"),
        num_bytes=message.num_bytes,
        sha256=digest(message.sha256, "sha256"),
        num_examples=_examples(message.num_examples),
        num_steps=min(message.num_steps, MAX_EXAMPLES),
        metrics=metrics(message.metrics),
        masked=_bounded(message.masked, MAX_MASKED_BYTES, "the message about masked words"),
    )


def receipt_to_pb(receipt: Receipt) -> transfer_pb2.Receipt:
    """A receipt as its message."""
    return transfer_pb2.Receipt(accepted=receipt.accepted, code=receipt.code, reason=receipt.reason)


def receipt_from_pb(message: transfer_pb2.Receipt) -> Receipt:
    """A receipt."""
    return Receipt(message.accepted, printable(message.code), printable(message.reason))


# Checks shared by all messages


def digest(text: str, what: str) -> str:
    """A lower-case hex SHA-256, or ProtocolError."""
    if not _DIGEST.fullmatch(text):
        raise ProtocolError(f"{what} is {text[:80]!r}, expected 64 lower-case hexadecimal digits")
    return text


def identifier(text: str, what: str) -> str:
    """A short name that is safe as a file name, or ProtocolError."""
    if not _IDENTIFIER.fullmatch(text):
        raise ProtocolError(f"{what} is {text[:80]!r}, expected letters, digits, dots, dashes and underscores")
    return text


def printable(text: str) -> str:
    """Foreign text, cut to a bound and freed of control characters."""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_REASON_LENGTH])


def metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Metrics with finite values and names that can be shown, or ProtocolError."""
    if len(values) > MAX_METRICS:
        raise ProtocolError(f"{len(values)} metrics were sent, at most {MAX_METRICS} are taken")
    found: dict[str, float] = {}
    for name, value in sorted(values.items()):
        if not math.isfinite(value):
            raise ProtocolError(f"metric {name[:80]!r} is {value}, expected a finite number")
        found[identifier(name, "a metric's name")] = value
    return found


def _round(number: int) -> int:
    if not 1 <= number <= MAX_ROUND:
        raise ProtocolError(f"round is {number}, expected 1 to {MAX_ROUND}")
    return number


def _examples(number: int) -> int:
    if number > MAX_EXAMPLES:
        raise ProtocolError(f"num_examples is {number}, expected at most {MAX_EXAMPLES}")
    return number


def _hello(message: session_pb2.Hello) -> Hello:
    if len(message.tasks) > MAX_TASKS:
        raise ProtocolError(f"the site offers {len(message.tasks)} tasks, at most {MAX_TASKS} are taken")
    offers = tuple(
        TaskOffer(identifier(t.name, "a task's name"), digest(t.code_sha256, "code_sha256")) for t in message.tasks
    )
    seconds = message.unix_seconds if math.isfinite(message.unix_seconds) else 0.0
    return Hello(identifier(message.version, "version"), offers, seconds)


def _assignment(message: session_pb2.Assignment) -> Assignment:
    work = work_from_pb(message.work)
    if work.phase is Phase.QUERY:
        raise ProtocolError("an assignment is of the phase query, expected train or evaluate")
    return Assignment(
        work=work,
        run_name=printable(message.run_name),
        task=identifier(message.task, "task"),
        model_sha256=digest(message.model_sha256, "model_sha256"),
        model_bytes=message.model_bytes,
        layout_sha256=digest(message.layout_sha256, "layout_sha256"),
        training=_training_from_pb(message.training),
        cohort_size=message.cohort_size,
        rounds=message.rounds,
        deadline_seconds=message.deadline_seconds,
        seed=message.seed,
        local_buffers=message.local_buffers,
        protection=_protection(message.protection),
        examples_per_weight=message.examples_per_weight,
    )


def _protection(name: str) -> Protection:
    if name and name not in PROTECTIONS:
        raise ProtocolError(f"the protection {name[:80]!r} is unknown here, expected {', '.join(PROTECTIONS)}")
    return name or "none"


def _secure_to_pb(message: SecureMessage) -> session_pb2.SecureMessage:
    return session_pb2.SecureMessage(work=work_to_pb(message.work), body=message.body, words=message.words)


def _secure(message: session_pb2.SecureMessage) -> SecureMessage:
    return SecureMessage(
        work_from_pb(message.work),
        _bounded(message.body, SECURE_BYTES, "a message of a secure sum"),
        _bounded(message.words, MAX_WORDS_BYTES, "the list of masked words of a query"),
    )


def _question(message: session_pb2.Question) -> Question:
    work = work_from_pb(message.work)
    if work.phase is not Phase.QUERY:
        raise ProtocolError(f"a question is of the phase {work.phase}, expected query")
    if len(message.query_json) > MAX_QUERY_BYTES:
        raise ProtocolError(f"a query has {len(message.query_json)} characters, expected at most {MAX_QUERY_BYTES}")
    return Question(work, message.query_json, message.cohort_size)


def _bounded(data: bytes, limit: int, what: str) -> bytes:
    if len(data) > limit:
        raise ProtocolError(f"{what} has {len(data)} bytes, expected at most {limit}")
    return data


def _training_to_pb(training: LocalTraining) -> session_pb2.LocalTraining:
    return session_pb2.LocalTraining(
        epochs=training.epochs or 0,
        steps=training.steps or 0,
        batch_size=training.batch_size,
        optimizer=training.optimizer,
        learning_rate=training.learning_rate,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        proximal_mu=training.proximal_mu,
        max_seconds=training.max_seconds or 0.0,
    )


def _training_from_pb(message: session_pb2.LocalTraining) -> LocalTraining:
    try:
        return LocalTraining(
            epochs=message.epochs or None,
            steps=message.steps or None,
            batch_size=message.batch_size,
            optimizer=message.optimizer,  # type: ignore[arg-type]  # pydantic checks it
            learning_rate=message.learning_rate,
            momentum=message.momentum,
            weight_decay=message.weight_decay,
            proximal_mu=message.proximal_mu,
            max_seconds=message.max_seconds or None,
        )
    except ValueError as error:
        raise ProtocolError(f"the assignment's training cannot be read: {error}") from None
