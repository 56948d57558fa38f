"""Questions about the site's records: judged by the policy, counted here, answered in a secure sum.

What leaves are masked counters. No refusal tells how many records there are, or what is in them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, time

from ..configuration import load, validate_json
from ..errors import FoedusError, SiteVeto, TaskFailed
from ..logs import log_event
from ..privacy.analytics.answer import Integers
from ..privacy.analytics.counters import num_records
from ..privacy.analytics.query import Query
from ..privacy.analytics.sessions import cost, local
from ..privacy.secagg.descriptor import SessionDescriptor
from ..protos.messages import Question, Refusal, Release, SecureMessage, SiteMessage, Work
from ..protos.wire import printable
from .config import RecordsEntry
from .home import SiteHome
from .policy import Policy, within
from .records import read_records
from .sums import Sums
from .task_code import run_task_code

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Questions:
    """Answers each question beside whatever the site is doing.

    Args:
        home: where the policy is, which is read anew for each question.
        records: where the records come from; None where there are none.
        sums: this site's part in secure sums.
        say: sends on the session, or drops the message while there is none; the server asks again.
    """

    home: SiteHome
    records: RecordsEntry | None
    sums: Sums
    say: Callable[[SiteMessage], None]
    _answering: dict[Work, asyncio.Task[None]] = field(default_factory=dict)
    _counted: dict[Work, tuple[Query, Integers]] = field(default_factory=dict)

    def ask(self, question: Question) -> None:
        """Take a question; when it comes again, for another attempt perhaps, what was counted is used again."""
        self.call_off(question.work)
        self.sums.announce(question)
        self._answering[question.work] = asyncio.create_task(self._answer(question))

    def call_off(self, work: Work) -> None:
        """Stop answering."""
        if (task := self._answering.pop(work, None)) is not None:
            task.cancel()

    def release(self, release: Release) -> None:
        """The server has no more use for an answer."""
        self.call_off(release.work)
        self._counted.pop(release.work, None)
        self.sums.forget(release.work.run, release.work.round)

    def interrupt(self) -> None:
        """Stop everything, for shutting down."""
        for work in list(self._answering):
            self.call_off(work)

    async def _answer(self, question: Question) -> None:
        work = question.work
        try:
            query, counters_K = await self._count(question)
            await self.sums.expect(question, local(query), query)
            step = await self.sums.masked(question, lambda session: self._charged(session, query, counters_K))
            if step.reply is not None and step.words is not None:
                self.say(SecureMessage(work, step.reply, step.words.tobytes()))
        except FoedusError as error:
            self._refuse(work, error.code, str(error), error.__cause__)
        except Exception as error:  # noqa: BLE001  (the site's own code may raise anything)
            self._refuse(work, TaskFailed.__name__, f"{type(error).__name__}; this site's log says why", error)

    async def _count(self, question: Question) -> tuple[Query, Integers]:
        query = validate_json(Query, question.query_json, "the query")
        policy = load(Policy, self.home.policy)
        require_allowed(policy, query, question.cohort_size, datetime.now().time())
        if (found := self._counted.get(question.work)) is not None and found[0] == query:
            return found
        if self.records is None:
            raise SiteVeto("this site has no records to be asked about", hint="name them in site.toml under [records]")
        records = await run_task_code(read_records, self.records, self.home.path)
        counters_K = await run_task_code(records.counted, query)
        policy.analytics.require_records(query, num_records(query, counters_K))
        self._counted[question.work] = query, counters_K
        log_event(log, "query_counted", work=str(question.work), name=query.name, counters=len(counters_K))
        return query, counters_K

    def _charged(self, session: SessionDescriptor, query: Query, counters_K: Integers) -> Integers:
        """The counters, once what a sum with them costs is in the ledger: whether it is opened, no site can know.

        Raises:
            BudgetExhausted: it costs too much.
        """
        store, event = self.sums.store, cost(query, session)
        load(Policy, self.home.policy).analytics.require_budget(query, [*store.spent(beside=session.sid), event])
        store.spend(session.sid, event)
        return counters_K

    def _refuse(self, work: Work, code: str, reason: str, cause: BaseException | None) -> None:
        reason = printable(reason)
        log_event(log, "query_refused", logging.WARNING, cause, work=str(work), code=code, reason=reason)
        self.say(Refusal(work, code, reason))


def require_allowed(policy: Policy, query: Query, cohort_size: int, local_time: time) -> None:
    """Check all that can be said of a query before a record is looked at.

    Raises:
        SiteVeto: with the first condition of the policy that does not hold.
    """
    policy.analytics.require(query)
    if policy.hours is not None and not within(policy.hours, local_time):
        raise SiteVeto(f"it is {local_time:%H:%M} at the site, which works {policy.hours} only")
    if cohort_size < policy.smallest_cohort:
        raise SiteVeto(f"{cohort_size} sites are asked, the site's policy demands at least {policy.smallest_cohort}")
