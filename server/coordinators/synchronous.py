"""Synchronous rounds: a cohort trains from one model, and its updates become the next one.

Every step is recorded before the next begins, so that a server killed anywhere finishes the same
round with the updates it already has, and ends in the same model, byte for byte.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...errors import QuorumNotMet
from ...modelfile import ModelFile
from ...protos.messages import Outcome, Phase, Release, Work
from ..aggregation import Step, aggregator_for, step_model
from ..assignments import assignment
from ..collection import Collection, Decision, State
from ..exclusion import suspend_distrusted
from ..federation import Federation
from ..history import Judgement, Participation, Round, RoundState, Run, Verdict
from ..judging import beside, draw_seed, hear, judge, judgements
from ..memory import give_back_memory
from ..optimizers import optimizer_for
from ..planner import middle, weighted_mean
from ..sum_state import as_it_is
from ..update_file import UpdateFile
from .opening import open_round, reopen_round
from .secure import collect_sum, step_by_sum

SMALL_BYTES = 1 << 20


async def run_round(fed: Federation, run: Run) -> Round:
    """Advance the run by one model, taking up an unfinished round where it was left.

    Raises:
        RoundFailed: no model came of it; the run's model stands and the round may be tried again.
    """
    round = fed.rounds.last(run.id)
    if round is None or round.state is RoundState.EVALUATED:
        round = await open_round(fed, run, round)
    elif round.state is RoundState.COLLECTING and round.reason:
        round = await reopen_round(fed, run, round)
    if round.state is RoundState.COLLECTING:
        with _timed(fed, "collect"):
            collect = collect_sum if run.plan.protection != "none" else collect_updates
            round = await collect(fed, run, round)
    if round.state is RoundState.CLOSED:
        with _timed(fed, "aggregate"):
            round = await commit_model(fed, run, round)
    if round.state is RoundState.COMMITTED:
        with _timed(fed, "evaluate"):
            round = await evaluate_model(fed, run, round)
    return round


async def collect_updates(fed: Federation, run: Run, round: Round) -> Round:
    """Ask the cohort and wait until the round is over; fix which updates count."""
    work = Work(run.id, round.number, Phase.TRAIN)
    parts = fed.participations.in_phase(run.id, round.number, Phase.TRAIN)
    collection, decision = await _collect(
        fed,
        run,
        round,
        work,
        parts,
        target=round.target,
        quorum=round.quorum,
        indispensable=run.plan.aggregator.reference,
    )
    if decision.state is State.MISSED:
        reason = _shortfall(fed, round, collection, decision)
        fed.rounds.fail(run.id, round.number, reason)
        fed.feed.publish("round_failed", run=run.id, round=round.number, detail=reason)
        raise QuorumNotMet(reason)
    still_open = sorted(collection.open_sites)
    silent = f"nothing moved for {run.plan.cohort.deadline_seconds:g} s"
    absent = {site: silent if site in decision.silent else "still at work at the close" for site in still_open}
    round = fed.rounds.close(run.id, round.number, absent=absent)
    for _ in still_open:
        fed.metrics.update_decided(Verdict.ABSENT)
    if run.plan.cohort.late == "drop":
        for site in still_open:
            fed.sessions.send(site, Release(work, Outcome.LATE, f"round {round.number} has closed"))
    fed.feed.publish("round_closed", run=run.id, round=round.number, detail=_listed("absent: ", still_open))
    return round


async def commit_model(fed: Federation, run: Run, round: Round) -> Round:
    """Combine the accepted updates into the next model and record it, in one transaction."""
    parts = contributors(fed, run, round)
    num_worthless = len(fed.participations.worthless(run.id, round.number))
    if run.plan.protection == "none":
        judged, step = await asyncio.to_thread(_step, fed, run, round, parts, num_worthless)
    else:
        session = fed.sums.current(Work(run.id, round.number, Phase.TRAIN))
        found, step = await asyncio.to_thread(step_by_sum, fed, run, round, as_it_is(session.state), session.names)
        # Whose group was lost has sent an update that is in no sum.
        judged = {part.site: found.get(part.site, Judgement(number, 0.0, None)) for number, part in parts}
    # No await from here to the commit: no other run may tidy up a model that no record names yet.
    for written in (step.model, step.state, step.aggregator_state):
        if written is not None:
            fed.blobs.adopt(written.path, written.sha256)
    round = fed.rounds.commit(
        run.id,
        round.number,
        model_sha256=step.model.sha256,
        optimizer_sha256=step.state.sha256 if step.state else None,
        aggregator_sha256=step.aggregator_state.sha256 if step.aggregator_state else None,
        metrics=weighted_mean(
            [(p.num_examples, p.metrics) for _, p in parts if not judged[p.site].reason],
            run.plan.aggregator.max_examples,
        ),
        judgements=judged,
        memory=fed.config.reputation.memory,
        evaluates=run.plan.evaluation.due(round.number, run.plan.rounds),
    )
    left_out = {site: judgement for site, judgement in sorted(judged.items()) if judgement.reason}
    for number, part in parts:
        outcome = Outcome.REJECTED if part.site in left_out else Outcome.COUNTED
        fed.sessions.send(part.site, Release(Work(run.id, number, Phase.TRAIN), outcome, judged[part.site].reason))
    fed.metrics.left_out(run.plan.aggregator.name, len(left_out))
    fed.blobs.keep_only(fed.runs.blobs_in_use())
    fed.sums.forget(run.id, round.number)
    fed.inbox.forget_round(run.id, round.number - 1 if run.plan.cohort.late == "keep" else round.number)
    told = _listed("left out: ", [f"{site}{_scored(judgement)}" for site, judgement in left_out.items()])
    fed.feed.publish("round_committed", run=run.id, round=round.number, metrics=round.training_metrics, detail=told)
    suspend_distrusted(fed)
    if fed.blobs.path(step.model.sha256).stat().st_size > SMALL_BYTES:
        await asyncio.to_thread(give_back_memory)
    return round


def _step(
    fed: Federation, run: Run, round: Round, parts: list[tuple[int, Participation]], num_worthless: int
) -> tuple[dict[str, Judgement], Step]:
    plan, aggregator = run.plan.aggregator, aggregator_for(run.plan.aggregator)
    model = ModelFile.open(fed.blobs.path(round.base_sha256))
    updates = {p.site: UpdateFile.open(fed.inbox.update(run.id, number, p.site), model.layout) for number, p in parts}
    attempt = secrets.token_hex(4)  # an interrupted attempt's thread may still be writing

    def blob(sha256: str | None) -> Path | None:
        return fed.blobs.path(sha256) if sha256 else None

    def scratch(name: str) -> Path:
        return fed.blobs.scratch(f"{run.id}-{round.number}-{attempt}-{name}")

    hearing = hear(aggregator, updates, plan.reference, blob(round.base_aggregator_sha256), scratch("aggregator"))
    decision = judge(
        aggregator,
        hearing,
        [p.num_examples for _, p in parts if p.site in hearing.updates],
        num_worthless,
        draw_seed(run.id, round.number, [p.sha256 or "" for _, p in parts]),
        fed.workers,
    )
    step = step_model(
        model,
        list(hearing.updates.values()),
        decision.combination,
        optimizer_for(run.plan.server_optimizer),
        blob(round.base_optimizer_sha256),
        out=scratch("model"),
        state_out=scratch("state"),
        reference=hearing.reference,
        aggregate_out=scratch("aggregator") if aggregator.rule.reference == "optional" else None,
        beside=beside(aggregator, decision, len(hearing.updates)),
        buffers=plan.buffers,
        workers=fed.workers,
    )
    if hearing.state is not None:
        step = replace(step, aggregator_state=hearing.state)
    return judgements(aggregator, parts, hearing, decision), step


def contributors(fed: Federation, run: Run, round: Round) -> list[tuple[int, Participation]]:
    """(round of origin, participation) of each update that counts, by site name.

    A late update of the round before stands in for its site if that sent nothing newer. One whose
    newer update was worthless is counted as exposed, and has nothing in the round.
    """
    found = {
        p.site: (round.number, p)
        for p in fed.participations.in_phase(run.id, round.number, Phase.TRAIN)
        if p.verdict is Verdict.ACCEPTED
    }
    if run.plan.cohort.late == "keep":
        exposed = fed.participations.worthless(run.id, round.number)
        for p in fed.participations.in_phase(run.id, round.number - 1, Phase.TRAIN):
            if p.verdict is Verdict.LATE and p.sha256 and p.site not in exposed:
                found.setdefault(p.site, (round.number - 1, p))
    return [found[site] for site in sorted(found)]


def evaluators(fed: Federation, run: Run, round: Round) -> list[str]:
    """Every connected site, and those whose updates are in the model: after the server's own restart
    nobody is connected yet, and they are on their way back."""
    parts = fed.participations.in_phase(run.id, round.number, Phase.TRAIN)
    contributed = {p.site for p in parts if p.verdict is Verdict.ACCEPTED}
    return sorted({*fed.available(run.plan.task), *contributed & fed.registry.active_sites()})


async def evaluate_model(fed: Federation, run: Run, round: Round) -> Round:
    """Have the sites measure the new model."""
    plan = run.plan.evaluation
    if not fed.participations.in_phase(run.id, round.number, Phase.EVALUATE):
        fed.rounds.ask_evaluation(run.id, round.number, evaluators(fed, run, round))
    work = Work(run.id, round.number, Phase.EVALUATE)
    parts = fed.participations.in_phase(run.id, round.number, Phase.EVALUATE)
    collection, _ = await _collect(fed, run, round, work, parts, target=len(parts), quorum=0)
    answers = [
        (p.num_examples, p.metrics)
        for p in fed.participations.in_phase(run.id, round.number, Phase.EVALUATE)
        if p.verdict is Verdict.ACCEPTED
    ]
    # Metrics choose the best model and end the run: where liars are expected, one of them must not.
    withstands = aggregator_for(run.plan.aggregator).rule.f != 0
    metrics = middle(answers) if withstands else weighted_mean(answers, run.plan.aggregator.max_examples)
    value = metrics.get(plan.metric)
    improved = value is not None and plan.improves(value, run.best_value)
    best = (round.model_sha256, value) if improved and round.model_sha256 and value is not None else None
    absent = dict.fromkeys(sorted(collection.open_sites), "no answer in time")
    round = fed.rounds.finish_evaluation(run.id, round.number, metrics=metrics, absent=absent, best=best)
    fed.feed.publish("round_evaluated", run=run.id, round=round.number, metrics=metrics)
    return round


async def _collect(
    fed: Federation,
    run: Run,
    round: Round,
    work: Work,
    parts: list[Participation],
    *,
    target: int,
    quorum: int,
    indispensable: str | None = None,
) -> tuple[Collection, Decision]:
    cohort = run.plan.cohort
    ends = fed.clock.monotonic() + (cohort.round_seconds or float("inf"))
    collection = Collection(target, quorum, cohort.deadline_seconds, ends, indispensable)
    collection.accepted.update(p.site for p in parts if p.verdict is Verdict.ACCEPTED)
    asked = [p.site for p in parts if p.verdict is Verdict.ASKED]
    collection.ask(asked, fed.clock.monotonic())
    if asked:
        order = assignment(fed, run, round, work.phase)
        for site in asked:
            fed.sessions.send(site, order)
    return collection, await fed.collector.collect(work, collection)


@contextmanager
def _timed(fed: Federation, phase: str) -> Iterator[None]:
    begun = fed.clock.monotonic()
    yield
    fed.metrics.phase_ended(phase, fed.clock.monotonic() - begun)


def _shortfall(fed: Federation, round: Round, collection: Collection, decision: Decision) -> str:
    parts = fed.participations.in_phase(round.run, round.number, Phase.TRAIN)
    said = [f"{p.site} {p.verdict} ({p.code}: {p.reason})" for p in parts if p.code]
    return (
        f"round {round.number}: {len(collection.accepted)} updates arrived, the quorum is {round.quorum}"
        + _listed("; silent: ", sorted(decision.silent))
        + _listed("; ", said)
    )


def _scored(judgement: Judgement) -> str:
    return "" if judgement.score is None else f" (score {judgement.score:.3g})"


def _listed(before: str, items: list[str]) -> str:
    return before + ", ".join(items) if items else ""
