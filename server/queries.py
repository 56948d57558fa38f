"""Queries: each put to the sites by one task that may be interrupted anywhere."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ..configuration import validate_json
from ..errors import FoedusError, MessageTooLarge, RunStateError, StoreError
from ..logs import log_event
from ..privacy.analytics.query import Query
from ..protos.messages import Outcome, Refusal, Release
from ..protos.wire import MAX_QUERY_BYTES
from .coordinators.query import answer_query
from .federation import Federation
from .history import Verdict
from .query_records import StoredQuery
from .questions import RECENT_QUERIES, query_work

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 60.0


class Queries:
    """Takes queries and sees them through. What a query has reached is in the records alone."""

    def __init__(self, fed: Federation) -> None:
        self._fed = fed
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def recover(self) -> None:
        """Take up every query that was under way when the server ended."""
        for stored in self._fed.queries.recent(RECENT_QUERIES):
            if stored.state.terminal:  # what a crash may have left of it
                self._fed.sums.forget(stored.id, 1)
        for stored in self._fed.queries.under_way():
            self._drive(stored.id)

    def submit(self, query_json: str) -> StoredQuery:
        """Check a query, record it and put it to the sites.

        Raises:
            MessageTooLarge: it is too long to be sent to sites.
            ConfigError: it is no query.
        """
        query = validate_json(Query, query_json, "the query") if len(query_json) <= MAX_QUERY_BYTES else None
        size = len(query.model_dump_json().encode()) if query else len(query_json)
        if query is None or size > MAX_QUERY_BYTES:
            raise MessageTooLarge(
                f"the query has {size} bytes, at most {MAX_QUERY_BYTES} are taken",
                hint="ask for fewer bins or categories, or in several queries",
            )
        stored = self._fed.queries.create(query)
        self._fed.feed.publish("query_queued", run=stored.id, detail=query.name)
        self._drive(stored.id)
        return stored

    async def ended(self, id: str, seconds: float) -> StoredQuery:
        """A query once it has ended, or as it stands after so long.

        Raises:
            NotFound: there is none, or more than one, whose id begins so.
        """
        stored = self._fed.queries.find(id)
        if not stored.state.terminal and seconds > 0:
            wait, task = min(seconds, MAX_WAIT_SECONDS), self._tasks.get(stored.id)
            if task is not None:
                await asyncio.wait([task], timeout=wait)
            else:  # it could not even be recorded as failed, and goes on after a restart
                await asyncio.sleep(wait)
        return self._fed.queries.find(stored.id)

    def refused(self, site: str, refusal: Refusal) -> None:
        """A site will not answer; the others may go on without it."""
        fed, work = self._fed, refusal.work
        fed.queries.settle(work.run, site, Verdict.REFUSED, code=refusal.code, reason=refusal.reason)
        fed.feed.publish("query_refused", run=work.run, site=site, detail=f"{refusal.code}: {refusal.reason}")
        fed.collector.settle(site, work, accepted=False)

    async def drain(self) -> None:
        """Leave every query where a restart takes it up."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _drive(self, id: str) -> None:
        task = asyncio.create_task(self._run(id), name=f"query {id}")
        self._tasks[id] = task
        task.add_done_callback(lambda _: self._tasks.pop(id, None))

    async def _run(self, id: str) -> None:
        fed = self._fed
        try:
            await answer_query(fed, id)
            fed.feed.publish("query_answered", run=id)
        except RunStateError:
            return  # it was ended meanwhile
        except FoedusError as error:
            self._fail(id, f"{error}{f'; {error.hint}' if error.hint else ''}")
        except Exception as error:  # noqa: BLE001  (a bug must not leave the operator waiting)
            log_event(log, "query_broke", logging.ERROR, error, query=id)
            self._fail(id, "an internal error; the server's log has the details")
        with suppress(StoreError):  # the next start does it
            self._release(id)

    def _fail(self, id: str, reason: str) -> None:
        try:
            self._fed.queries.fail(id, reason)
        except (RunStateError, StoreError) as error:  # a restart takes it up, unless it has ended
            log_event(log, "query_interrupted", logging.ERROR, error, query=id, cause=reason)
            return
        self._fed.feed.publish("query_failed", run=id, detail=reason)

    def _release(self, id: str) -> None:
        """Let every site that was asked forget what it keeps for the query."""
        stored = self._fed.queries.find(id)
        if not stored.state.terminal:
            return
        outcome = Outcome.COUNTED if stored.answers else Outcome.CANCELLED
        for asked in self._fed.queries.asked(id):
            self._fed.sessions.send(asked.site, Release(query_work(id), outcome, stored.reason))
        self._fed.sums.forget(id, 1)
