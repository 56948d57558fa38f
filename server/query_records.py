"""Queries as the database remembers them, and who was asked. States are monotone, as those of runs are."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..clock import Clock
from ..errors import RunStateError
from ..privacy.analytics.answer import Answers
from ..privacy.analytics.query import Query
from .history import Verdict
from .journal import append_event
from .store import Store


class QueryState(StrEnum):
    """queued → running → answered or failed."""

    QUEUED = "queued"
    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return self in (QueryState.ANSWERED, QueryState.FAILED)


UNDER_WAY = (QueryState.QUEUED, QueryState.RUNNING)


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query as recorded; ``attempt`` is the latest, 0 before the first."""

    id: str
    state: QueryState
    reason: str
    query: Query
    created: float
    finished: float | None
    attempt: int
    answers: Answers | None


@dataclass(frozen=True, slots=True)
class AskedSite:
    """A site that a query was put to, and what became of it; ``code`` names an error class."""

    site: str
    verdict: Verdict
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueryRecords:
    """Queries and named transactions over them; every change is journalled with it."""

    store: Store
    clock: Clock

    def create(self, query: Query) -> StoredQuery:
        """Record a new query, queued."""
        id = secrets.token_hex(6)
        with self.store.transaction("creating a query") as db:
            db.execute(
                "INSERT INTO queries VALUES (?, ?, 'queued', '', ?, ?, NULL, 0, '')",
                (id, query.name, query.model_dump_json(), self.clock.now()),
            )
            self._event(db, "query_created", query=id, name=query.name, sha256=query.digest.hex())
        return self.find(id)

    def find(self, id: str) -> StoredQuery:
        """The query with this id, or with this unique beginning of an id.

        Raises:
            NotFound: no query, or more than one, begins so.
        """
        return _query_of(self.store.beginning_with(id, "queries", "query", "'foedus analytics ls' lists them"))

    def under_way(self) -> list[StoredQuery]:
        """Those that have not ended, oldest first."""
        rows = self.store.query("SELECT * FROM queries WHERE state IN (?, ?) ORDER BY created, id", *UNDER_WAY)
        return [_query_of(row) for row in rows]

    def recent(self, number: int) -> list[StoredQuery]:
        """The newest queries, newest first."""
        rows = self.store.query("SELECT * FROM queries ORDER BY created DESC, id DESC LIMIT ?", number)
        return [_query_of(row) for row in rows]

    def asked(self, id: str) -> list[AskedSite]:
        """Who was asked, by name."""
        return [
            _asked_of(row) for row in self.store.query("SELECT * FROM asked_sites WHERE query = ? ORDER BY site", id)
        ]

    def asked_site(self, id: str, site: str) -> AskedSite | None:
        """One site's part in a query, or None if it was not asked."""
        rows = self.store.query("SELECT * FROM asked_sites WHERE query = ? AND site = ?", id, site)
        return _asked_of(rows[0]) if rows else None

    def unanswered(self, site: str) -> list[StoredQuery]:
        """The queries under way whose answer a site still owes."""
        rows = self.store.query(
            "SELECT q.* FROM queries q JOIN asked_sites a ON a.query = q.id "
            "WHERE a.site = ? AND a.verdict = 'asked' AND q.state = 'running' ORDER BY q.created, q.id",
            site,
        )
        return [_query_of(row) for row in rows]

    def open_attempt(self, id: str, cohort: Iterable[str]) -> StoredQuery:
        """Record an attempt and whom it asks, before anybody is asked.

        Raises:
            RunStateError: the query has ended; nothing changed.
        """
        sites = sorted(cohort)
        with self.store.transaction(f"asking query {id}") as db:
            self._move(db, id, "state = 'running', attempt = attempt + 1", ())
            db.execute("DELETE FROM asked_sites WHERE query = ? AND verdict <> 'refused'", (id,))
            db.executemany("INSERT INTO asked_sites VALUES (?, ?, 'asked', '', '')", [(id, site) for site in sites])
            self._event(db, "query_asked", query=id, sites=sites)
        return self.find(id)

    def settle(self, id: str, site: str, verdict: Verdict, *, code: str = "", reason: str = "") -> None:
        """What became of a site that was asked; nothing changes what was settled before."""
        with self.store.transaction(f"settling {site} of query {id}") as db:
            changed = db.execute(
                "UPDATE asked_sites SET verdict = ?, code = ?, reason = ? "
                "WHERE query = ? AND site = ? AND verdict IN ('asked', 'accepted')",
                (verdict, code, reason, id, site),
            ).rowcount
            if changed:
                self._event(db, f"query_{verdict}", query=id, site=site, code=code)

    def answer(self, id: str, answers: Answers, verdicts: Mapping[str, Verdict]) -> StoredQuery:
        """Record the answer, and who is in it.

        Raises:
            RunStateError: the query has ended; nothing changed.
        """
        text = answers.to_json()
        with self.store.transaction(f"answering query {id}") as db:
            self._move(db, id, "state = 'answered', answer_json = ?, finished = ?", (text, self.clock.now()))
            db.executemany(
                "UPDATE asked_sites SET verdict = ? WHERE query = ? AND site = ? AND verdict IN ('asked', 'accepted')",
                [(verdict, id, site) for site, verdict in verdicts.items()],
            )
            digest = hashlib.sha256(text.encode()).hexdigest()
            fields = {"sites": answers.num_sites, "epsilon": answers.epsilon, "answer_sha256": digest}
            self._event(db, "query_answered", query=id, **fields)
        return self.find(id)

    def fail(self, id: str, reason: str) -> StoredQuery:
        """End a query without an answer.

        Raises:
            RunStateError: it has ended; nothing changed.
        """
        with self.store.transaction(f"ending query {id}") as db:
            self._move(db, id, "state = 'failed', reason = ?, finished = ?", (reason, self.clock.now()))
            self._event(db, "query_failed", query=id, reason=reason)
        return self.find(id)

    def _move(self, db: sqlite3.Connection, id: str, change: str, values: tuple[object, ...]) -> None:
        sql = f"UPDATE queries SET {change} WHERE id = ? AND state IN (?, ?)"  # noqa: S608
        if not db.execute(sql, (*values, id, *UNDER_WAY)).rowcount:
            raise RunStateError(f"query {id} has ended")

    def _event(self, db: sqlite3.Connection, event: str, /, **fields: object) -> None:
        append_event(db, self.clock.now(), event, fields)


def _query_of(row: sqlite3.Row) -> StoredQuery:
    return StoredQuery(
        id=row["id"],
        state=QueryState(row["state"]),
        reason=row["reason"],
        query=Query.model_validate(json.loads(row["query_json"])),
        created=row["created"],
        finished=row["finished"],
        attempt=row["attempt"],
        answers=Answers.from_json(row["answer_json"]) if row["answer_json"] else None,
    )


def _asked_of(row: sqlite3.Row) -> AskedSite:
    return AskedSite(row["site"], Verdict(row["verdict"]), row["code"], row["reason"])
