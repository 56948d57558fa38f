"""The site's desk: assignments come in, are judged by the policy, done one at a time, and answered.

Work goes on while the connection is down, and what was done is never done again: an update lies
in the outbox until the server has decided, an evaluation is remembered until it is released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime

from ..configuration import load
from ..errors import FoedusError, NotFound, StaleRound, TaskFailed
from ..logs import log_event
from ..modelfile import Model
from ..protos.config_digest import training_sha256
from ..protos.messages import Assignment, Evaluation, Outcome, Phase, Refusal, Release, SiteMessage, Work
from ..protos.wire import MAX_EXAMPLES, printable
from .claims import checked_measurement, checked_result
from .delivery import Delivery
from .fetching import fetch_model
from .home import SiteHome
from .job import Interrupted, Job
from .loading import InstalledTask
from .local_state import keep_local_buffers
from .outbound import update_blocks
from .outbox import Outbox, Trained
from .policy import Policy, WorkRequest, check
from .spent import log_spent
from .sums import Sums, local_of
from .task import LocalResult, TrainingJob, job_seed
from .task_code import run_task_code
from .transfer import Connect

log = logging.getLogger(__name__)

Say = Callable[[SiteMessage], None]

MAX_REMEMBERED = 64


class Desk:
    """Does assignments in the order they come.

    Args:
        site: this site's name.
        home: where models, checkpoints and the policy are. The policy is read anew for each
            assignment, so that an administrator's change counts at once.
        tasks: what is installed here.
        outbox: updates on their way.
        sums: this site's part in secure sums.
        connect: the channel of the moment.
        say: sends on the session, or drops the message while there is none; the server asks again.
    """

    def __init__(
        self,
        site: str,
        home: SiteHome,
        tasks: dict[str, InstalledTask],
        outbox: Outbox,
        sums: Sums,
        connect: Connect,
        say: Say,
    ) -> None:
        self._site = site
        self._home = home
        self._tasks = tasks
        self._outbox = outbox
        self._sums = sums
        self._beside: set[asyncio.Task[None]] = set()
        self._connect = connect
        self._delivery = Delivery(outbox, sums, connect, self._moved)
        self._say = say
        self._queue: asyncio.Queue[Job] = asyncio.Queue()
        self._jobs: dict[Work, Job] = {}
        self._answers: dict[Work, Evaluation] = {}
        self.current: Work | None = None
        self.progress = 0
        self.last_rejected = ""

    def assign(self, assignment: Assignment) -> None:
        """Take an assignment; one that is here already, or answered, is not taken twice."""
        answer = self._answers.get(assignment.work)
        if answer is not None and answer.model_sha256 == assignment.model_sha256:
            self._say(answer)
            return
        job = self._jobs.get(assignment.work)
        if job is not None and job.order_sha256 != training_sha256(assignment):
            job.call_off()  # what it trains is not for this order
        if job is None or job.stop.is_set():  # called off, and now asked for once more
            job = self._jobs[assignment.work] = Job(assignment)
            self._queue.put_nowait(job)
        else:
            job.times_asked += 1
        if assignment.work.phase is Phase.TRAIN and assignment.protection != "none":
            self._sums.announce(assignment)
            self._do_beside(self._join_sum(assignment))

    def call_off(self, work: Work) -> None:
        """Stop a piece of work, which has been refused."""
        if work in self._jobs:
            self._jobs[work].call_off()

    def release(self, release: Release) -> None:
        """The server has no more use for a piece of work; nor for training in an earlier round of that run."""
        news = self._answers.pop(release.work, None) is not None
        for work, job in self._jobs.items():
            if work == release.work or (
                work.phase is release.work.phase is Phase.TRAIN
                and work.run == release.work.run
                and work.round < release.work.round
            ):
                job.call_off()
                news = True
        if release.work.phase is Phase.TRAIN:
            for round in self._outbox.kept(release.work.run, release.work.round):
                self._outbox.release(release.work.run, round)
                news = True
            log_spent(self._sums.store.find(release.work.run, release.work.round))
            self._sums.forget(release.work.run, release.work.round)
        # With every new session the server says again how the last round ended.
        if release.outcome is Outcome.COUNTED or not news:
            return
        if release.outcome is Outcome.REJECTED:
            self.last_rejected = f"{release.work}: {release.reason}"
        log_event(log, "work_released", work=str(release.work), outcome=release.outcome, reason=release.reason)

    async def run(self) -> None:
        """Do one job after the other, until cancelled."""
        while True:
            job = await self._queue.get()
            self.current = job.work
            try:
                if not job.stop.is_set():
                    await self._do(job, self._train if job.work.phase is Phase.TRAIN else self._evaluate)
            finally:
                self.current = None
                if not job.goes_on:
                    self._over(job)

    def interrupt(self) -> None:
        """Call off everything, for shutting down; checkpoints and the outbox stay."""
        for job in self._jobs.values():
            job.call_off()
        for task in self._beside:
            task.cancel()

    def _over(self, job: Job) -> None:
        if self._jobs.get(job.work) is job:
            del self._jobs[job.work]

    def _do_beside(self, what: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(what)
        self._beside.add(task)  # the event loop alone would not keep it
        task.add_done_callback(self._beside.discard)

    async def _do(self, job: Job, what: Callable[[Job], Coroutine[object, object, None]]) -> None:
        try:
            await what(job)
        except Interrupted:
            log_event(log, "work_interrupted", work=str(job.work))
        except (NotFound, StaleRound) as error:
            # The round went on without us while we were away.
            log_event(log, "work_is_over", work=str(job.work), reason=str(error))
        except Exception as error:  # noqa: BLE001  (a task's own code may raise anything)
            self._fail(job.work, error)

    async def _join_sum(self, order: Assignment) -> None:
        """Take part in the exchange of keys beside whatever is being trained."""
        try:
            trained = self._outbox.find(order.work.run, order.work.round, order.model_sha256, training_sha256(order))
            task = self._tasks.get(order.task) if trained else self._permitted(order)
            if task is not None:
                layout = await run_task_code(task.task.layout)
                await self._sums.expect(order, local_of(order, layout.num_trainable))
        except Exception as error:  # noqa: BLE001  (as above)
            self._fail(order.work, error)
            self.call_off(order.work)

    def _fail(self, work: Work, error: Exception) -> None:
        if isinstance(error, FoedusError):
            self._refuse(work, Refusal(work, error.code, str(error)))
            return
        log_event(log, "task_failed", logging.ERROR, error, work=str(work))
        self._refuse(work, Refusal(work, TaskFailed.__name__, f"{type(error).__name__}: {error}"))

    async def _train(self, job: Job) -> None:
        work, order = job.work, job.assignment
        if self._outbox.find(work.run, work.round, order.model_sha256, job.order_sha256) is None:
            task = self._permitted(order)
            if task is None:
                return
            received = await fetch_model(job, task, self._home, self._connect, self._moved)
            seed = job_seed(order.seed, work.round, self._site)
            try:
                self._outbox.begin(work.run, work.round, order.model_sha256, seed, job.order_sha256)
            except StaleRound as error:
                self._refuse(work, Refusal(work, error.code, str(error)))
                return
            result = await run_task_code(task.task.train, received, self._job_for(job, seed))
            if job.stop.is_set():
                raise Interrupted
            result = checked_result(result)
            await asyncio.to_thread(self._put, job, received, result)
            log_event(log, "training_finished", work=str(work), steps=result.num_steps, metrics=result.metrics)
        if order.protection == "none":
            await self._delivery.deliver(job)
        else:
            # It can be masked only once others have answered, and the work of other runs need not wait for them.
            job.goes_on = True
            self._do_beside(self._deliver_beside(job))

    def _put(self, job: Job, received: Model, result: LocalResult) -> None:
        work, order = job.work, job.assignment
        if order.local_buffers:
            keep_local_buffers(result.model, self._home.checkpoints, work)
        trained = Trained(
            layout_sha256=received.layout.digest,
            num_examples=result.num_examples,
            num_steps=result.num_steps,
            metrics=result.metrics,
        )
        blocks = update_blocks(received, result.model)
        self._outbox.put(work.run, work.round, order.model_sha256, blocks, trained)

    async def _deliver_beside(self, job: Job) -> None:
        await self._do(job, self._delivery.deliver)
        self._over(job)

    async def _evaluate(self, job: Job) -> None:
        task = self._permitted(job.assignment)
        if task is None:
            return
        model = await fetch_model(job, task, self._home, self._connect, self._moved)
        measured = await run_task_code(task.task.evaluate, model)
        if job.stop.is_set():
            raise Interrupted
        measured = checked_measurement(measured)
        answer = Evaluation(job.work, job.assignment.model_sha256, measured.num_examples, dict(measured.metrics))
        while len(self._answers) >= MAX_REMEMBERED:
            del self._answers[next(iter(self._answers))]
        self._answers[job.work] = answer
        self._say(answer)

    def _permitted(self, order: Assignment) -> InstalledTask | None:
        """The task, if it is here and the policy allows the work; a refusal has been said otherwise."""
        work, task = order.work, self._tasks.get(order.task)
        if task is None:
            self._refuse(work, Refusal(work, "NotFound", f"there is no task {order.task!r} at this site"))
            return None
        request = WorkRequest(
            task=order.task,
            code_sha256=task.code_sha256,
            cohort_size=order.cohort_size,
            rounds_done=self._outbox.rounds_done(work.run),
            rounds=order.rounds,
            local_time=datetime.now().time(),
            trains=work.phase is Phase.TRAIN,
            protection=order.protection,
        )
        refusal = check(load(Policy, self._home.policy), request)
        if refusal is not None:
            self._refuse(work, Refusal(work, refusal.code, refusal.reason))
            return None
        return task

    def _refuse(self, work: Work, refusal: Refusal) -> None:
        reason = printable(refusal.reason)  # a task's error may hold what cannot be encoded
        log_event(log, "work_refused", work=str(work), code=refusal.code, reason=reason)
        self._say(replace(refusal, reason=reason))

    def _job_for(self, job: Job, seed: int) -> TrainingJob:
        steps_seen = 0

        def report(steps: int) -> None:
            nonlocal steps_seen
            if job.stop.is_set():
                raise Interrupted
            steps = min(int(steps), MAX_EXAMPLES)
            self._moved(max(0, steps - steps_seen))
            steps_seen = max(steps, steps_seen)

        return TrainingJob(
            run=job.work.run,
            round=job.work.round,
            site=self._site,
            training=job.assignment.training,
            seed=seed,
            checkpoints=self._home.checkpoints,
            report=report,
            should_stop=job.stop.is_set,
        )

    def _moved(self, amount: int) -> None:
        self.progress += amount
