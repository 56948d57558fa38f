"""The database's rows of secure sums: what each session is about, and what it has heard, in order.

A session's state follows from these, so that a server that was killed goes on with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protos.messages import Work
from .store import Store


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session: its descriptor, its roster, and each accepted message; None where a phase was closed."""

    attempt: int
    descriptor: bytes
    roster_version: int
    messages: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class SumRecords:
    """Named transactions over sessions and their messages."""

    store: Store

    def open(self, work: Work, attempt: int, descriptor: bytes, roster_version: int) -> None:
        """Record a session before anybody hears of it."""
        with self.store.transaction(f"opening a secure sum for {work}") as db:
            db.execute(
                "INSERT INTO secure_sessions VALUES (?, ?, ?, ?, ?)",
                (work.run, work.round, attempt, descriptor, roster_version),
            )

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
            "SELECT * FROM secure_sessions WHERE run = ? AND round = ? ORDER BY attempt DESC LIMIT 1",
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
            tuple(row["message"] for row in messages),
        )

    def forget(self, run: str, through: int) -> None:
        """Remove the messages of a run's rounds up to and including one; they are of no use any more."""
        with self.store.transaction(f"forgetting secure sums of run {run}") as db:
            for table in ("secure_messages", "secure_sessions"):
                db.execute(f"DELETE FROM {table} WHERE run = ? AND round <= ?", (run, through))  # noqa: S608
