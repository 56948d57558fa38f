"""What a site is asked to do, rebuilt from the records whenever it has to be said (again)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..protos.messages import Assignment, Outcome, Phase, Release, Work
from .federation import Federation
from .history import ALIVE, Round, RoundState, Run, RunState, Verdict

RECENT_RUNS = 20

ASKING = {RoundState.COLLECTING: Phase.TRAIN, RoundState.COMMITTED: Phase.EVALUATE}


def assignment(fed: Federation, run: Run, round: Round, phase: Phase) -> Assignment:
    """The same words for every site of the cohort: nothing in them is personal."""
    model_sha256 = round.base_sha256 if phase is Phase.TRAIN else round.model_sha256
    assert model_sha256 is not None  # noqa: S101  (a committed round has a model)
    return Assignment(
        work=Work(run.id, round.number, phase),
        run_name=run.name,
        task=run.plan.task,
        model_sha256=model_sha256,
        model_bytes=fed.blobs.path(model_sha256).stat().st_size,
        layout_sha256=fed.layout(model_sha256).digest,
        training=run.plan.training,
        cohort_size=len(fed.records.participations(run.id, round.number, phase)),
        rounds=run.plan.rounds,
        deadline_seconds=run.plan.cohort.deadline_seconds,
        seed=run.plan.seed,
        local_buffers=run.plan.aggregator.buffers == "local",
    )


def outstanding(fed: Federation, site: str, states: Iterable[RunState] = (RunState.RUNNING,)) -> Iterator[Assignment]:
    """All that a site was asked and has not answered, over all running runs."""
    for run in fed.records.runs(states):
        round = fed.records.last_round(run.id)
        if round is None or round.state not in ASKING:
            continue
        phase = ASKING[round.state]
        part = fed.records.participation(Work(run.id, round.number, phase), site)
        if part is not None and part.verdict is Verdict.ASKED:
            yield assignment(fed, run, round, phase)


def settled(fed: Federation, site: str) -> Iterator[Release]:
    """What a site that comes back need not keep any longer: it may have missed that it was told so."""
    for run in fed.records.runs()[-RECENT_RUNS:]:
        done = _rounds_done(fed, run)
        if done and fed.records.took_part(run.id, site):
            yield Release(Work(run.id, done, Phase.TRAIN), Outcome.COUNTED)


def _rounds_done(fed: Federation, run: Run) -> int:
    round = fed.records.last_round(run.id)
    if round is None:
        return 0
    if run.state.terminal:
        return round.number
    done = round.number - (round.state in (RoundState.COLLECTING, RoundState.CLOSED))
    # A late update that is kept counts in the round after its own.
    return done - (run.plan.cohort.late == "keep")


def unanswered(fed: Federation, site: str) -> list[Work]:
    """All that a site was asked and has not answered, in paused runs too."""
    asked: list[Work] = []
    for run in fed.records.runs(ALIVE):
        round = fed.records.last_round(run.id)
        if round is None or round.state not in ASKING:
            continue
        work = Work(run.id, round.number, ASKING[round.state])
        part = fed.records.participation(work, site)
        if part is not None and part.verdict is Verdict.ASKED:
            asked.append(work)
    return asked


def works_with(fed: Federation, site: str, model_sha256: str) -> list[Work]:
    """The work with a model that this site was given and that is not over; a paused run's is not."""
    return [order.work for order in outstanding(fed, site, ALIVE) if order.model_sha256 == model_sha256]
