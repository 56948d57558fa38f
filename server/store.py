"""The server's database: SQLite in WAL mode, one connection, named transactions, migrations."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import Corrupt, DiskFull, NotFound, SchemaTooNew, StoreError

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE members (
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        state TEXT NOT NULL,
        request_pem TEXT NOT NULL,
        key_sha256 TEXT NOT NULL,
        origin TEXT NOT NULL,
        certificate_expires REAL,
        last_seen REAL,
        PRIMARY KEY (role, name)
    ) STRICT;
    CREATE TABLE invitations (
        secret_sha256 TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        approved INTEGER NOT NULL,
        expires REAL NOT NULL,
        key_sha256 TEXT
    ) STRICT;
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        plan_json TEXT NOT NULL,
        created REAL NOT NULL,
        initial_sha256 TEXT NOT NULL,
        best_sha256 TEXT,
        best_value REAL
    ) STRICT;
    CREATE TABLE rounds (
        run TEXT NOT NULL REFERENCES runs,
        number INTEGER NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        target INTEGER NOT NULL,
        quorum INTEGER NOT NULL,
        available TEXT NOT NULL,
        base_sha256 TEXT NOT NULL,
        base_optimizer_sha256 TEXT,
        started REAL NOT NULL,
        finished REAL,
        model_sha256 TEXT,
        optimizer_sha256 TEXT,
        training_metrics TEXT NOT NULL,
        evaluation_metrics TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) STRICT;
    CREATE TABLE participations (
        run TEXT NOT NULL,
        round INTEGER NOT NULL,
        phase TEXT NOT NULL,
        site TEXT NOT NULL,
        verdict TEXT NOT NULL,
        code TEXT NOT NULL,
        reason TEXT NOT NULL,
        num_examples INTEGER NOT NULL,
        num_steps INTEGER NOT NULL,
        sha256 TEXT,
        metrics TEXT NOT NULL,
        PRIMARY KEY (run, round, phase, site),
        FOREIGN KEY (run, round) REFERENCES rounds
    ) STRICT;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        unix_seconds REAL NOT NULL,
        name TEXT NOT NULL,
        fields TEXT NOT NULL,
        digest TEXT NOT NULL
    ) STRICT;
    """,
    """
    ALTER TABLE rounds ADD COLUMN base_aggregator_sha256 TEXT;
    ALTER TABLE rounds ADD COLUMN aggregator_sha256 TEXT;
    ALTER TABLE participations ADD COLUMN weight REAL;
    ALTER TABLE participations ADD COLUMN score REAL;
    ALTER TABLE members ADD COLUMN rejection_rate REAL NOT NULL DEFAULT 0;
    ALTER TABLE members ADD COLUMN rounds_judged INTEGER NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE members ADD COLUMN signing_key BLOB;
    CREATE TABLE rosters (
        version INTEGER PRIMARY KEY,
        signed BLOB NOT NULL
    ) STRICT;
    CREATE TABLE secure_sessions (
        run TEXT NOT NULL,
        round INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        descriptor BLOB NOT NULL,
        roster_version INTEGER NOT NULL REFERENCES rosters,
        secret BLOB NOT NULL,
        blamed BLOB NOT NULL,
        over INTEGER NOT NULL,
        PRIMARY KEY (run, round, attempt)
    ) STRICT;
    CREATE TABLE secure_messages (
        seq INTEGER PRIMARY KEY,
        run TEXT NOT NULL,
        round INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        message BLOB,
        words BLOB,
        FOREIGN KEY (run, round, attempt) REFERENCES secure_sessions
    ) STRICT;
    CREATE TABLE queries (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        query_json TEXT NOT NULL,
        created REAL NOT NULL,
        finished REAL,
        attempt INTEGER NOT NULL,
        answer_json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE asked_sites (
        query TEXT NOT NULL REFERENCES queries,
        site TEXT NOT NULL,
        verdict TEXT NOT NULL,
        code TEXT NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (query, site)
    ) STRICT;
    """,
)


class Store:
    """One open database. Used from the event loop's thread only; transactions are short.

    ``read_only`` looks at it as it is, beside a server that works with it if need be.

    Raises:
        SchemaTooNew: the file was written by a newer foedus.
        Corrupt: the file is no database.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with _typed("opening the database"):
            mode = "ro" if read_only else "rwc"
            uri = f"{path.absolute().as_uri()}?mode={mode}"
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            try:
                self._connection.row_factory = sqlite3.Row
                if read_only:
                    return
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._connection.execute("PRAGMA busy_timeout = 5000")
                self._migrate()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the database; what was committed stays."""
        self._connection.close()

    def query(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """The rows of a SELECT."""
        with _typed("reading the database"):
            return self._connection.execute(sql, values).fetchall()

    def beginning_with(self, id: str, table: str, kind: str, hint: str) -> sqlite3.Row:
        """The row of a table whose id is this one, or the only one whose id begins so; ``kind`` says what a row is.

        Raises:
            NotFound: no row, or more than one, begins so.
        """
        sql = f"SELECT * FROM {table} WHERE substr(id, 1, ?) = ?"  # noqa: S608  (our own tables)
        rows = self.query(sql, len(id), id) if id else []
        if len(rows) != 1:
            found = f"more than one {kind}" if rows else f"no {kind}"
            raise NotFound(f"{found} has an id beginning with {id[:64]!r}", hint=hint)
        return rows[0]

    @contextmanager
    def transaction(self, name: str) -> Iterator[sqlite3.Connection]:
        """All of the block's statements take effect, or none; durable when the block ends.

        Raises:
            DiskFull, StoreError: nothing took effect; ``name`` is in the message.
        """
        with _typed(name):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _migrate(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        newest = len(MIGRATIONS)
        if version > newest:
            raise SchemaTooNew(
                f"{self.path} has schema version {version}, this foedus knows up to {newest}",
                hint="start the foedus version that wrote it, or a newer one",
            )
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            self._connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


@contextmanager
def _typed(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text or "disk I/O" in text:
            raise DiskFull(f"{doing}: {text}", hint="free some space; the run can then be resumed") from error
        if isinstance(error, sqlite3.DatabaseError) and ("not a database" in text or "malformed" in text):
            raise Corrupt(f"{doing}: {text}", hint="restore the home directory from a backup") from error
        raise StoreError(f"{doing}: {text}") from error
