"""Runs: rounds until the plan is done, each run driven by one task that may be interrupted anywhere."""

from __future__ import annotations

import asyncio
import logging

from ..errors import (
    Corrupt,
    FoedusError,
    NotFound,
    QuorumNotMet,
    RoundFailed,
    RunStateError,
    SecureSumFailed,
    StoreError,
)
from ..files import sha256_file
from ..logs import log_event
from ..privacy.secagg.codes import AbortCode
from ..protos.messages import Outcome, Phase, Release, Work
from .assignments import ASKING
from .coordinators.synchronous import run_round
from .federation import Federation
from .history import ALIVE, Round, RoundState, Run, RunState, Verdict

log = logging.getLogger(__name__)


class Runs:
    """Starts, pauses, resumes and stops runs. What a run has reached is in the records alone."""

    def __init__(self, fed: Federation) -> None:
        self._fed = fed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        fed.hold = self.hold

    def recover(self) -> None:
        """Take up every run that was alive when the server ended."""
        for run in self._fed.runs.all((RunState.QUEUED, RunState.RUNNING)):
            self._drive(run.id)

    def start(self, run: Run) -> None:
        """Begin a run that was just created."""
        self._drive(run.id)

    async def pause(self, id: str, reason: str = "paused by an operator") -> Run:
        """Stop advancing; work in progress at the sites is still accepted.

        Raises:
            RunStateError: the run is not running.
        """
        run = self._fed.runs.move(id, RunState.PAUSED, allowed=(RunState.RUNNING,), reason=reason)
        self._fed.held.pop(id, None)
        await self._interrupt(id)
        self._publish(run)
        return run

    def resume(self, id: str) -> Run:
        """Go on where a paused run was left.

        Raises:
            RunStateError: the run is not paused.
        """
        if self._fed.held.pop(id, None) is not None:
            run = self._fed.runs.find(id)
        else:
            run = self._fed.runs.move(id, RunState.RUNNING, allowed=(RunState.PAUSED,))
        self._publish(run)
        self._drive(id)
        return run

    async def stop(self, id: str) -> Run:
        """End a run for good; its last model stays.

        Raises:
            RunStateError: it has already ended.
        """
        run = self._fed.runs.move(id, RunState.STOPPED, allowed=ALIVE, reason="stopped by an operator")
        self._fed.held.pop(id, None)
        await self._interrupt(id)
        self._release(run, Outcome.CANCELLED, "the run was stopped")
        self._publish(run)
        return run

    def hold(self, id: str, reason: str) -> None:
        """Pause a run that the server itself cannot go on with, such as on a full disk."""
        task = self._tasks.pop(id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        try:
            run = self._fed.runs.move(id, RunState.PAUSED, allowed=(RunState.RUNNING,), reason=reason)
        except RunStateError:
            return
        except StoreError as error:
            # Not even the pause could be recorded: after a restart the run goes on by itself.
            self._fed.held[id] = reason
            log_event(log, "run_held", logging.ERROR, error, run=id, cause=reason)
            return
        self._fed.held.pop(id, None)
        self._publish(run)

    async def drain(self) -> None:
        """Stop driving every run, leaving each where a restart takes it up."""
        for id in list(self._tasks):
            await self._interrupt(id)

    @property
    def num_active(self) -> int:
        """How many runs are being driven."""
        return len(self._tasks)

    def _drive(self, id: str) -> None:
        task = asyncio.create_task(self._run(id), name=f"run {id}")
        self._tasks[id] = task

        def forget(done: asyncio.Task[None]) -> None:
            if self._tasks.get(id) is done:
                del self._tasks[id]

        task.add_done_callback(forget)

    async def _interrupt(self, id: str) -> None:
        task = self._tasks.pop(id, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, id: str) -> None:
        try:
            run = self._fed.runs.find(id)
            if run.state is RunState.QUEUED:
                run = self._fed.runs.move(id, RunState.RUNNING, allowed=(RunState.QUEUED,))
                self._publish(run)
            else:
                await asyncio.to_thread(self._require_intact, self._models_of(run))
            await self._advance(run)
        except RunStateError:
            return  # somebody decided otherwise meanwhile, and that stands
        except (StoreError, NotFound) as error:
            self.hold(id, str(error))
        except SecureSumFailed as error:
            # Shares were given away, so no other attempt can be opened: the sites' answers are still to come.
            if error.reason == AbortCode.TOO_FEW:
                self.hold(id, f"{error}; resume once more sites are back")
            else:
                self._fail(id, error)
        except FoedusError as error:
            self._fail(id, error)
        except Exception as error:  # noqa: BLE001  (a bug must not lose the run)
            log_event(log, "run_broke", logging.ERROR, error, run=id)
            self.hold(id, "an internal error; the server's log has the details")

    async def _advance(self, run: Run) -> None:
        while run.state is RunState.RUNNING:
            last = self._fed.rounds.last(run.id)
            if last is not None and _is_final(run, last):
                self._end(run.id, RunState.FINISHED, "")
                return
            begun = self._fed.clock.monotonic()
            try:
                await run_round(self._fed, run)
            except RoundFailed as error:
                self._fed.metrics.round_ended("failed", self._fed.clock.monotonic() - begun)
                self._after_failure(run, error)
            else:
                self._fed.metrics.round_ended("committed", self._fed.clock.monotonic() - begun)
            run = self._fed.runs.find(run.id)

    def _after_failure(self, run: Run, error: RoundFailed) -> None:
        """Let a round that missed its quorum be tried again; whatever else failed would fail again."""
        failed = self._fed.rounds.last(run.id)
        if not isinstance(error, QuorumNotMet) or failed is None or failed.attempt > run.plan.max_failed_rounds:
            raise error

    def _models_of(self, run: Run) -> list[str]:
        round = self._fed.rounds.last(run.id)
        if round is None:
            return [run.initial_sha256]
        committed = round.state in (RoundState.COMMITTED, RoundState.EVALUATED)
        model = round.model_sha256 if committed else round.base_sha256
        optimizer = round.optimizer_sha256 if committed else round.base_optimizer_sha256
        aggregator = round.aggregator_sha256 if committed else round.base_aggregator_sha256
        return [sha256 for sha256 in (model, optimizer, aggregator) if sha256]

    def _require_intact(self, models: list[str]) -> None:
        for sha256 in models:
            self._fed.blobs.require_intact(sha256)

    def _fail(self, id: str, error: FoedusError) -> None:
        try:
            self._end(id, RunState.FAILED, str(error))
        except RunStateError:
            return
        except StoreError as full:
            self.hold(id, f"{full}; before that: {error}")

    def _end(self, id: str, state: RunState, reason: str) -> None:
        run = self._fed.runs.move(id, state, allowed=(RunState.RUNNING,), reason=reason)
        self._release(run, Outcome.CANCELLED, reason)
        self._publish(run)

    def _release(self, run: Run, outcome: Outcome, reason: str) -> None:
        round = self._fed.rounds.last(run.id)
        self._fed.inbox.forget_run(run.id)
        if round is not None:
            self._fed.sums.forget(run.id, round.number)
        if round is None or round.state not in ASKING:
            return
        work = Work(run.id, round.number, ASKING[round.state])
        for part in self._fed.participations.in_phase(run.id, round.number, work.phase):
            if part.verdict in (Verdict.ASKED, Verdict.ACCEPTED):
                self._fed.sessions.send(part.site, Release(work, outcome, reason))

    def _publish(self, run: Run) -> None:
        self._fed.feed.publish(f"run_{run.state}", run=run.id, detail=run.reason)


def _is_final(run: Run, round: Round) -> bool:
    if round.state is not RoundState.EVALUATED:
        return False
    value = round.evaluation_metrics.get(run.plan.evaluation.metric)
    return round.number >= run.plan.rounds or (value is not None and run.plan.evaluation.reached(value))


def verify_inbox(fed: Federation) -> None:
    """Make records and files agree after a crash: what was lost is asked for again.

    An update is durable at its site until the round is committed, so the server need not force
    every update to the disk; here it finds out whether one went missing.
    """
    kept: set[tuple[str, int]] = set()
    for run in fed.runs.all(ALIVE):
        open = True  # whether the round after this one has yet to be committed
        for round in reversed(fed.rounds.all(run.id)[-2:]):
            kept.add((run.id, round.number))
            late_counts, open = open, round.state in (RoundState.COLLECTING, RoundState.CLOSED)
            work = Work(run.id, round.number, Phase.TRAIN)
            for part in fed.participations.in_phase(run.id, round.number, Phase.TRAIN):
                path = fed.inbox.update(run.id, round.number, part.site)
                if not part.sha256 or (path.is_file() and sha256_file(path) == part.sha256):
                    continue
                if run.plan.protection != "none":
                    path.unlink(missing_ok=True)  # forced to the disk, so the disk has lost it: the run will be held
                elif open and part.verdict is Verdict.ACCEPTED:
                    fed.rounds.ask_again(work, part.site)
                elif late_counts and part.verdict is Verdict.LATE:
                    fed.participations.settle(
                        work, part.site, Verdict.LATE, code=Corrupt.__name__, reason="it was lost"
                    )
    for run_id, number in list(fed.inbox.rounds()):
        if (run_id, number) not in kept:
            fed.inbox.forget_round(run_id, number)
