"""What a site is asked to do, rebuilt from the records whenever it has to be said (again)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import FoedusError
from ..privacy.secagg.terms import weighs_examples
from ..protos.messages import Assignment, Outcome, Phase, Release, Work
from .federation import Federation
from .history import ALIVE, LEFT_OUT, Round, RoundState, Run, RunState, Verdict

RECENT_RUNS = 20

ASKING = {RoundState.COLLECTING: Phase.TRAIN, RoundState.COMMITTED: Phase.EVALUATE}


def assignment(fed: Federation, run: Run, round: Round, phase: Phase) -> Assignment:
    """The same words for every site of the cohort: nothing in them is personal."""
    model_sha256 = _model_of(round, phase)
    assert model_sha256 is not None  # noqa: S101  (a committed round has a model)
    return Assignment(
        work=Work(run.id, round.number, phase),
        run_name=run.name,
        task=run.plan.task,
        model_sha256=model_sha256,
        model_bytes=fed.blobs.path(model_sha256).stat().st_size,
        layout_sha256=fed.layout(model_sha256).digest,
        training=run.plan.training,
        cohort_size=len(fed.participations.in_phase(run.id, round.number, phase)),
        rounds=run.plan.rounds,
        deadline_seconds=run.plan.cohort.deadline_seconds,
        seed=run.plan.seed,
        local_buffers=run.plan.aggregator.buffers == "local",
        protection=run.plan.protection,
        examples_per_weight=run.plan.secure.examples_per_weight if weighs_examples(run.plan) else 0,
    )


def outstanding(fed: Federation, site: str) -> Iterator[Assignment]:
    """All that a site was asked and has not answered, over all running runs.

    A run that cannot say it, since its model is gone or damaged, is held: the others go on.
    """
    for run, round, work in _asked(fed, site, (RunState.RUNNING,)):
        try:
            order = assignment(fed, run, round, work.phase)
        except FoedusError as error:
            fed.hold(run.id, str(error))
            continue
        yield order


def settled(fed: Federation, site: str) -> Iterator[Release]:
    """What a site that comes back need not keep any longer: it may have missed that it was told so."""
    for run in fed.runs.recent(RECENT_RUNS):
        done = _rounds_done(fed, run)
        if done and fed.participations.took_part(run.id, site):
            work = Work(run.id, done, Phase.TRAIN)
            part = fed.participations.find(work, site)
            if part is not None and part.code == LEFT_OUT:
                yield Release(work, Outcome.REJECTED, part.reason)
            else:
                yield Release(work, Outcome.COUNTED)
        yield from _let_go(fed, run, site)


def _let_go(fed: Federation, run: Run, site: str) -> Iterator[Release]:
    """A secure sum that is still under way may go on without a site: it waits for nothing then."""
    round = fed.rounds.last(run.id)
    if round is not None and round.state is RoundState.COLLECTING and not run.state.terminal:
        work = Work(run.id, round.number, Phase.TRAIN)
        part = fed.participations.find(work, site)
        if part is not None and part.verdict is Verdict.ABSENT:
            yield Release(work, Outcome.LATE, part.reason)


def _rounds_done(fed: Federation, run: Run) -> int:
    round = fed.rounds.last(run.id)
    if round is None:
        return 0
    if run.state.terminal:
        return round.number
    done = round.number - (round.state in (RoundState.COLLECTING, RoundState.CLOSED))
    # A late update that is kept counts in the round after its own.
    return done - (run.plan.cohort.late == "keep")


def unanswered(fed: Federation, site: str) -> list[Work]:
    """All that a site was asked and has not answered, in paused runs too."""
    return [work for _, _, work in _asked(fed, site, ALIVE)]


def may_fetch(fed: Federation, site: str, model_sha256: str) -> bool:
    """Whether a site was given work with a model that is not over; a paused run's is not."""
    return any(_model_of(round, work.phase) == model_sha256 for _, round, work in _asked(fed, site, ALIVE))


def _asked(fed: Federation, site: str, states: Iterable[RunState]) -> Iterator[tuple[Run, Round, Work]]:
    for run in fed.runs.all(states):
        round = fed.rounds.last(run.id)
        if round is None or round.state not in ASKING:
            continue
        work = Work(run.id, round.number, ASKING[round.state])
        part = fed.participations.find(work, site)
        if part is not None and part.verdict is Verdict.ASKED:
            yield run, round, work


def _model_of(round: Round, phase: Phase) -> str | None:
    return round.base_sha256 if phase is Phase.TRAIN else round.model_sha256
