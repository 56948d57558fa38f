"""What a site remembers of secure sums, durable: its state in each, so that no message is answered twice differently.

The states hold secrets until they are erased: the folder is the site's alone.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import SchemaTooNew
from ..files import private_folder
from ..privacy.secagg.state import SiteState
from ..privacy.secagg.stored import restored, stored
from ..privacy.secrets import Secret
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
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")  # what was erased is not to be found in free pages
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
        """This site's state in the latest attempt at a round."""
        with self._reading():
            row = self._db.execute("SELECT state FROM sums WHERE run = ? AND round = ?", (run, round)).fetchone()
        return restored(Secret(row["state"])) if row else None

    def keep(self, state: SiteState) -> None:
        """Remember a state in place of the one before; durable when this returns."""
        session = state.descriptor
        with self._reading(), transaction(self._db):
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

    def model_used_in(self, model_sha256: str) -> tuple[str, int] | None:
        """The run and round in which an update of this model was masked, if one was."""
        with self._reading():
            row = self._db.execute(
                "SELECT run, round FROM sums WHERE model_sha256 = ? AND masked ORDER BY rowid LIMIT 1", (model_sha256,)
            ).fetchone()
        return (row["run"], row["round"]) if row else None

    def roster_version(self) -> int:
        """The highest version of the roster that was seen."""
        with self._reading():
            return int(self._db.execute("SELECT coalesce(max(roster_version), 0) FROM sums").fetchone()[0])

    def forget(self, run: str, through: int) -> None:
        """Keep of a run's rounds up to one only what later sessions must be held against."""
        with self._reading():
            rows = self._db.execute("SELECT state FROM sums WHERE run = ? AND round <= ?", (run, through)).fetchall()
        for state in (restored(Secret(row["state"])) for row in rows):
            if state != state.remembered():
                self.keep(state.remembered())

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, database_errors(self._path):
            yield
