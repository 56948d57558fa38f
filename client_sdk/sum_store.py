"""What a site remembers of secure sums, durable: its state in each, so that no message is answered twice differently.

The states hold secrets until they are erased: the folder is the site's alone, and what was erased is in no file.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import SchemaTooNew, StaleRound
from ..files import private_folder
from ..privacy.analytics.differencing import Cohort
from ..privacy.analytics.sessions import may_be_answered
from ..privacy.events import Event
from ..privacy.secagg.descriptor import Mode
from ..privacy.secagg.encoding import SITE_ID_BYTES
from ..privacy.secagg.state import SiteState
from ..privacy.secagg.stored import restored, stored
from ..privacy.secrets import Secret
from . import ledger
from .outbox_rows import database_errors, transaction

SCHEMA_VERSION: Final = 1

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sums (
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    model_sha256 TEXT NOT NULL,
    masked INTEGER NOT NULL,
    roster_version INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (run, round)
) STRICT;
CREATE INDEX IF NOT EXISTS sums_by_model ON sums (model_sha256);
CREATE TABLE IF NOT EXISTS groups (run TEXT PRIMARY KEY, participants BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS answered (cohort BLOB PRIMARY KEY) STRICT;
CREATE TABLE IF NOT EXISTS spent (sid BLOB PRIMARY KEY, event TEXT NOT NULL) STRICT;
"""


@dataclass(slots=True)
class SumStore:
    """One site's states. Its methods may run in any thread."""

    _path: Path
    _db: sqlite3.Connection
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def open(folder: Path) -> SumStore:
        """Open the store, or make it.

        Raises:
            SchemaTooNew: a newer foedus wrote it.
            StoreError: it cannot be opened.
        """
        path = private_folder(folder) / "sums.sqlite"
        with database_errors(path):
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            db.row_factory = sqlite3.Row
            # What was erased is not to be found in free pages, nor in a log that is emptied some day.
            db.execute("PRAGMA journal_mode = TRUNCATE")
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA synchronous = FULL")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                db.close()
                raise SchemaTooNew(
                    f"{path} has schema {version}, this foedus knows {SCHEMA_VERSION}",
                    hint="upgrade foedus at this site",
                )
            db.executescript(f"{_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION};")
        return SumStore(path, db)

    def close(self) -> None:
        """Let another process open it."""
        with self._lock:
            self._db.close()

    def find(self, run: str, round: int) -> SiteState | None:
        """This site's state in the latest attempt at a round; None also where the round is over for good."""
        with self._reading():
            return self._state(run, round)

    def is_over(self, run: str, round: int) -> bool:
        """Whether a later round of the run has been released, so that this one is never joined again."""
        with self._reading():
            query = "SELECT 1 FROM sums WHERE run = ? AND round = ? AND state = ''"
            return self._db.execute(query, (run, round)).fetchone() is not None

    def keep(self, state: SiteState, before: SiteState | None) -> None:
        """Remember a state in place of the one that it follows from; durable when this returns.

        Raises:
            StaleRound: another has taken that one's place meanwhile, and stands.
        """
        session = state.descriptor
        with self._reading(), transaction(self._db):
            if self._state(session.run, session.round) != before:
                raise StaleRound(f"round {session.round} of run {session.run} went on meanwhile")
            self._put(state)
            if session.mode is Mode.GROUPS and state.exposures:
                group = b"".join(session.participants)
                self._db.execute("INSERT OR IGNORE INTO groups VALUES (?, ?)", (session.run, group))
            if cohort := may_be_answered(state):
                self._db.execute("INSERT OR IGNORE INTO answered VALUES (?)", (b"".join(sorted(cohort)),))

    def answered(self) -> list[Cohort]:
        """The cohorts over whose records exact sums were or may have been opened."""
        with self._reading():
            rows = self._db.execute("SELECT cohort FROM answered").fetchall()
        return [frozenset(_ids(row["cohort"])) for row in rows]

    def spent(self, *, beside: bytes = b"") -> list[Event]:
        """What answering queries has cost, but for the session ``beside``."""
        with self._reading():
            rows = self._db.execute("SELECT event FROM spent WHERE sid != ? ORDER BY rowid", (beside,)).fetchall()
        return [ledger.read(row["event"]) for row in rows]

    def spend(self, sid: bytes, event: Event) -> None:
        """Enter what a session costs, before anything leaves that costs it; once, however often it is entered."""
        with self._reading(), transaction(self._db):
            self._db.execute("INSERT OR IGNORE INTO spent VALUES (?, ?)", (sid, ledger.written(event)))

    def model_used_in(self, model_sha256: str) -> tuple[str, int] | None:
        """The run and round in which an update of this model was masked, if one was."""
        with self._reading():
            row = self._db.execute(
                "SELECT run, round FROM sums WHERE model_sha256 = ? AND masked ORDER BY rowid LIMIT 1", (model_sha256,)
            ).fetchone()
        return (row["run"], row["round"]) if row else None

    def group_in(self, run: str) -> tuple[bytes, ...]:
        """The sites of the group in which this site has masked an update in a run; none before."""
        with self._reading():
            row = self._db.execute("SELECT participants FROM groups WHERE run = ?", (run,)).fetchone()
        return _ids(row["participants"]) if row else ()

    def roster_version(self) -> int:
        """The highest version of the roster that was seen."""
        with self._reading():
            return int(self._db.execute("SELECT coalesce(max(roster_version), 0) FROM sums").fetchone()[0])

    def forget(self, run: str, through: int) -> None:
        """Keep of a round what another attempt must be held against, of those before it only that they were."""
        with self._reading(), transaction(self._db):
            self._db.execute("UPDATE sums SET state = '' WHERE run = ? AND round < ? AND state != ''", (run, through))
            state = self._state(run, through)
            if state is not None and state != state.remembered():
                self._put(state.remembered())

    def _state(self, run: str, round: int) -> SiteState | None:
        query = "SELECT state FROM sums WHERE run = ? AND round = ? AND state != ''"
        row = self._db.execute(query, (run, round)).fetchone()
        return restored(Secret(row["state"])) if row else None

    def _put(self, state: SiteState) -> None:
        session = state.descriptor
        self._db.execute(
            "INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?, ?, ?)",
            (
                session.run,
                session.round,
                session.model_digest.hex(),
                bool(state.exposures),
                state.roster_version,
                stored(state).reveal(),
            ),
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, database_errors(self._path):
            yield


def _ids(joined: bytes) -> tuple[bytes, ...]:
    return tuple(joined[start : start + SITE_ID_BYTES] for start in range(0, len(joined), SITE_ID_BYTES))
