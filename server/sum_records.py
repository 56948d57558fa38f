"""The database's rows of secure sums: what each session is about, and what it has heard, in order.

A session's state follows from these, so that a server that was killed goes on with the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..privacy.secagg.encoding import SITE_ID_BYTES
from ..privacy.secrets import Secret
from ..protos.messages import Work
from .store import Store


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session: its descriptor and roster, the server's private randomness, and each accepted message; None where
    a phase was closed."""

    attempt: int
    descriptor: bytes
    roster_version: int
    secret: Secret
    messages: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class SumRecords:
    """Named transactions over sessions and their messages."""

    store: Store

    def open(self, work: Work, attempt: int, descriptor: bytes, roster_version: int, secret: Secret) -> None:
        """Record a session before anybody hears of it."""
        with self.store.transaction(f"opening a secure sum for {work}") as db:
            db.execute(
                "INSERT INTO secure_sessions VALUES (?, ?, ?, ?, ?, ?, x'', 0)",
                (work.run, work.round, attempt, descriptor, roster_version, secret.reveal_bytes()),
            )

    def blame(self, work: Work, attempt: int, sites: Collection[bytes]) -> None:
        """Note who spoilt a session."""
        with self.store.transaction(f"noting who spoilt {work}") as db:
            db.execute(
                "UPDATE secure_sessions SET blamed = ? WHERE run = ? AND round = ? AND attempt = ?",
                (b"".join(sorted(sites)), work.run, work.round, attempt),
            )

    def blamed(self, work: Work) -> set[bytes]:
        """Who spoilt any attempt at this work."""
        rows = self.store.query("SELECT blamed FROM secure_sessions WHERE run = ? AND round = ?", work.run, work.round)
        ids = b"".join(row["blamed"] for row in rows)
        return {ids[start : start + SITE_ID_BYTES] for start in range(0, len(ids), SITE_ID_BYTES)}

    def first_descriptor(self, run: str) -> bytes | None:
        """That of a run's first session."""
        query = "SELECT descriptor FROM secure_sessions WHERE run = ? ORDER BY round, attempt LIMIT 1"
        return next((row["descriptor"] for row in self.store.query(query, run)), None)

    def append(self, work: Work, attempt: int, message: bytes | None, words: bytes | None = None) -> None:
        """Record an accepted message, or with None that a phase was closed, before it has an effect.

        ``words`` are those that came with it, of a query; an update's lie in the inbox.
        """
        with self.store.transaction(f"recording a message of {work}") as db:
            db.execute(
                "INSERT INTO secure_messages (run, round, attempt, message, words) VALUES (?, ?, ?, ?, ?)",
                (work.run, work.round, attempt, message, words),
            )

    def words(self, work: Work, attempt: int) -> list[tuple[bytes, bytes]]:
        """The messages that words came with, and the words."""
        rows = self.store.query(
            "SELECT message, words FROM secure_messages "
            "WHERE run = ? AND round = ? AND attempt = ? AND words IS NOT NULL ORDER BY seq",
            work.run,
            work.round,
            attempt,
        )
        return [(row["message"], row["words"]) for row in rows]

    def newest(self, work: Work) -> StoredSession | None:
        """The session of the latest attempt at a round that has one."""
        rows = self.store.query(
            "SELECT * FROM secure_sessions WHERE run = ? AND round = ? AND NOT over ORDER BY attempt DESC LIMIT 1",
            work.run,
            work.round,
        )
        if not rows:
            return None
        found = rows[0]
        messages = self.store.query(
            "SELECT message FROM secure_messages WHERE run = ? AND round = ? AND attempt = ? ORDER BY seq",
            work.run,
            work.round,
            found["attempt"],
        )
        return StoredSession(
            found["attempt"],
            found["descriptor"],
            found["roster_version"],
            Secret(found["secret"]),
            tuple(row["message"] for row in messages),
        )

    def forget(self, run: str, through: int) -> None:
        """Remove the messages of a run's rounds up to and including one; they are of no use any more.

        What the first session was about stays: groups that are fixed for the run follow from it.
        """
        with self.store.transaction(f"forgetting secure sums of run {run}") as db:
            db.execute("DELETE FROM secure_messages WHERE run = ? AND round <= ?", (run, through))
            db.execute(
                "DELETE FROM secure_sessions WHERE run = ?1 AND round <= ?2 AND (round, attempt) <> "
                "(SELECT round, attempt FROM secure_sessions WHERE run = ?1 ORDER BY round, attempt LIMIT 1)",
                (run, through),
            )
            db.execute(
                "UPDATE secure_sessions SET over = 1, secret = x'', blamed = x'' WHERE run = ? AND round <= ?",
                (run, through),
            )
