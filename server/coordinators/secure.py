"""Secure rounds: what is collected are masked updates and what takes the masks off their sum, phase by phase.

Opening, committing and evaluating a round are as in ``synchronous``. Before the last phase an attempt may fail and be
made again, with fresh keys; once sites may have given shares away, no other attempt can be opened, and a round that
lacks answers then waits for them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection as Names
from collections.abc import Mapping
from pathlib import Path

from ...errors import ConfigError, InvalidUpdate, QuorumNotMet, SecureSumFailed, TooFewUpdates
from ...modelfile import ModelFile
from ...privacy.secagg.collect import Phase as SumPhase
from ...privacy.secagg.collect import SumCollection
from ...privacy.secagg.signing import site_id
from ...protos.messages import Outcome, Phase, Release, Work
from ..aggregation import Step, step_model
from ..assignments import assignment
from ..collection import Collection
from ..federation import Federation
from ..history import Judgement, Round, Run, Verdict
from ..optimizers import optimizer_for
from ..secure_sum import open_means, require_openable
from ..sum_descriptor import describe
from ..sum_state import SumState, as_it_is, shares_updates
from ..sums import Session
from .phases import lead


async def collect_sum(fed: Federation, run: Run, round: Round) -> Round:
    """Lead the cohort through the phases until the masks can be taken off; fix whose updates are in the sum.

    Raises:
        QuorumNotMet: this attempt has failed and may be made again.
        SecureSumFailed: shares may have been given away, and they open no sum.
    """
    work = Work(run.id, round.number, Phase.TRAIN)
    session = fed.sums.find(work)
    try:
        if session is None or session.attempt != round.attempt:
            _open(fed, run, round, work)
        _ask(fed, run, round)
        session = await lead(
            fed,
            work,
            let_go=lambda session: _let_go(fed, work, session),
            answers=lambda session: _answers(fed, run, round, work, session),
        )
    except (SecureSumFailed, ConfigError, TooFewUpdates, InvalidUpdate) as error:
        if isinstance(error, SecureSumFailed) and error.blamed:
            fed.sums.blame(work, error.blamed)
        fed.rounds.fail(run.id, round.number, str(error))
        fed.feed.publish("round_failed", run=run.id, round=round.number, detail=str(error))
        raise QuorumNotMet(str(error)) from error
    try:
        await asyncio.to_thread(require_openable, as_it_is(session.state))  # or it goes on waiting
    except SecureSumFailed as error:
        if error.blamed:  # the run ends with this, and the journal keeps who is to blame
            names = ", ".join(sorted(session.names[site] for site in error.blamed))
            told = f"{error}; to blame: {names}"
            fed.rounds.fail(run.id, round.number, told)
            fed.feed.publish("round_failed", run=run.id, round=round.number, detail=told)
        raise
    fed.feed.publish("round_closed", run=run.id, round=round.number)
    return fed.rounds.close(run.id, round.number, absent={})


def step_by_sum(
    fed: Federation, run: Run, round: Round, state: SumState, names: Mapping[bytes, str]
) -> tuple[dict[str, Judgement], Step]:
    """Take the masks off and combine what is then seen into the next model; to be called in a thread.

    Args:
        state: as it is: nobody changes it meanwhile.
        names: of the participants, by id.

    Returns:
        What became of each site that sent a masked update, and the model.

    Raises:
        FoedusError: as ``open_means`` and ``step_model``.
    """
    model, attempt = ModelFile.open(fed.blobs.path(round.base_sha256)), secrets.token_hex(4)
    written: list[Path] = []

    def scratch(name: str) -> Path:
        return fed.blobs.scratch(f"{run.id}-{round.number}-{attempt}-{name}")

    def mean(name: str) -> Path:
        written.append(scratch(name))
        return written[-1]

    def row(id: bytes) -> Path:
        return fed.inbox.update(run.id, round.number, names[id])

    try:
        opened = open_means(state, run.plan, round.number, row, model.layout, mean)
        step = step_model(
            model,
            opened.means,
            opened.combination,
            optimizer_for(run.plan.server_optimizer),
            fed.blobs.path(round.base_optimizer_sha256) if round.base_optimizer_sha256 else None,
            out=scratch("model"),
            state_out=scratch("state"),
            buffers="local",
            workers=fed.workers,
        )
    finally:
        for path in written:
            path.unlink(missing_ok=True)
    return {names[id]: judgement for id, judgement in opened.judged.items()}, step


def eligible(fed: Federation, run: Run, round: int, available: Names[str]) -> list[str]:
    """Those of the available sites that can be in a secure sum: the roster has their keys, and no dealer among them
    spoilt the attempt before."""
    roster, spoilers = fed.rosters.latest(), fed.sums.blamed(Work(run.id, round, Phase.TRAIN))
    known = set(roster.by_id if roster else ())
    if members := _members(fed, run):
        known &= set(members)
    ids = {site: site_id(key) for site, key in fed.registry.signing_keys().items()}
    return sorted(site for site in available if ids.get(site) in known and site not in spoilers)


def _members(fed: Federation, run: Run) -> tuple[bytes, ...]:
    """Whom groups that are fixed for a run were drawn from in its first round; empty for other runs, and before it."""
    fixed = run.plan.protection == "groups" and run.plan.secure.regroup == "run"
    return fed.sums.first_participants(run.id) if fixed else ()


def unfit(fed: Federation, run: Run, round: int) -> str:
    """Which sites do not count as connected for a secure sum, to be said after how many do."""
    if fed.rosters.latest() is None:
        return "; no roster names any: an operator signs one with 'foedus roster sign'"
    spoilers = sorted(fed.sums.blamed(Work(run.id, round, Phase.TRAIN)))
    return " that the roster names" + (f"; shares of {', '.join(spoilers)} did not open" if spoilers else "")


def _open(fed: Federation, run: Run, round: Round, work: Work) -> Session:
    roster = fed.rosters.latest()
    keys = fed.registry.signing_keys()
    cohort = [part.site for part in fed.participations.in_phase(run.id, round.number, Phase.TRAIN)]
    if gone := sorted(set(cohort) - keys.keys()):
        raise ConfigError(f"{', '.join(gone)} left the federation before the secure sum began")
    assert roster is not None  # noqa: S101  (the cohort was chosen from those that it names)
    ids = _members(fed, run) or tuple(site_id(keys[site]) for site in cohort)
    order = assignment(fed, run, round, Phase.TRAIN)
    descriptor = describe(run.plan, round, order, fed.layout(round.base_sha256), roster, ids)
    return fed.sums.open(work, round.attempt, descriptor, roster)


def _ask(fed: Federation, run: Run, round: Round) -> None:
    """The assignment to whoever has not sent an update: training goes on beside the exchange of keys."""
    order = assignment(fed, run, round, Phase.TRAIN)
    for part in fed.participations.in_phase(run.id, round.number, Phase.TRAIN):
        if part.verdict is Verdict.ASKED:
            fed.sessions.send(part.site, order)


async def _answers(fed: Federation, run: Run, round: Round, work: Work, session: Session) -> None:
    """Wait until all that are asked have answered, or the phase is over: training while progress is seen, the
    other phases for so long and no longer."""
    cohort, now = run.plan.cohort, fed.clock.monotonic()
    trains = session.state.phase is (SumPhase.DEALS if shares_updates(session.state) else SumPhase.MASKED)
    seconds = cohort.round_seconds or float("inf") if trains else cohort.deadline_seconds
    target = _enough(round, session) if trains else len(session.descriptor.participants)
    collection = Collection(target, 0, cohort.deadline_seconds, now + seconds)
    if trains:
        collection.accepted.update(session.masked)
    parts = fed.participations.in_phase(run.id, round.number, Phase.TRAIN)
    taking_part = {part.site for part in parts if part.verdict in (Verdict.ASKED, Verdict.ACCEPTED)}
    collection.ask(session.waiting & taking_part & fed.registry.active_sites(), now)
    await fed.collector.collect(work, collection)


def _enough(round: Round, session: Session) -> int:
    """How many masked updates close a round early: as many as are wanted, and as acknowledge them and open the sum
    even if some of them leave."""
    state, terms = session.state, session.descriptor
    if not isinstance(state, SumCollection):
        return terms.num_sites  # whoever is missing may cost a group, or an answer about sketches
    session_needs = max(terms.needed_survivors, terms.needed_acks, state.threshold)
    return max(round.target, session_needs + terms.dropouts)


def _let_go(fed: Federation, work: Work, session: Session) -> None:
    """Tell those that the session goes on without, and record it, unless that was done before a restart."""
    stays, masked = {session.names[id] for id in session.outgoing}, session.masked
    for part in fed.participations.in_phase(work.run, work.round, Phase.TRAIN):
        if part.verdict is not Verdict.ASKED or part.site in stays - masked:
            continue
        if part.site in masked:  # a crash came between its update and the record of that
            fed.participations.settle(work, part.site, Verdict.ACCEPTED)
            continue
        reason = f"the secure sum of round {work.round} goes on without an answer"
        fed.participations.settle(work, part.site, Verdict.ABSENT, reason=reason)
        fed.metrics.update_decided(Verdict.ABSENT)
        fed.sessions.send(part.site, Release(work, Outcome.LATE, reason))
