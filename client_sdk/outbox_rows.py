"""The outbox's table: opening it, its schema, and its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..errors import Corrupt, DiskFull, SchemaTooNew, StoreError

SCHEMA_VERSION: Final = 2

# Only what a state needs is set: a parcel from ``ready`` on, a receipt from ``delivered`` on.
_SCHEMA: Final = """
CREATE TABLE schema (version INTEGER NOT NULL);
CREATE TABLE work (
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    model_sha256 TEXT NOT NULL,
    seed INTEGER NOT NULL,
    order_sha256 TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('training', 'ready', 'delivered', 'released')),
    began REAL NOT NULL,
    layout_sha256 TEXT,
    num_bytes INTEGER,
    sha256 TEXT,
    num_examples INTEGER,
    num_steps INTEGER,
    metrics TEXT,
    accepted INTEGER,
    code TEXT,
    reason TEXT,
    PRIMARY KEY (run, round)
) WITHOUT ROWID;
"""


def open_table(path: Path) -> sqlite3.Connection:
    """Open the database, or make it.

    Raises:
        SchemaTooNew: a newer foedus wrote it.
        StoreError: it cannot be opened or is no database.
    """
    with database_errors(path):
        # Methods run in threads, one at a time: ``Outbox`` holds the lock.
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            _migrate(db, path)
        except BaseException:
            db.close()
            raise
        return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All statements inside, or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has ended it already
            db.execute("ROLLBACK")
        raise


@contextmanager
def database_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise DiskFull(f"writing {path}: no space left on the disk", hint="free some space") from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise Corrupt(
                f"{path} is damaged: {error}",
                hint="move the outbox folder away; rounds that were not delivered are trained again",
            ) from error
        raise StoreError(f"{path}: {error}") from error


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    with transaction(db):
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema'").fetchone():
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            db.execute("INSERT INTO schema VALUES (?)", (SCHEMA_VERSION,))
        version = db.execute("SELECT max(version) FROM schema").fetchone()[0]
        if version == 1:
            db.execute("ALTER TABLE work ADD COLUMN order_sha256 TEXT NOT NULL DEFAULT ''")
            db.execute("INSERT INTO schema VALUES (?)", (SCHEMA_VERSION,))
            version = SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{path} has schema {version}, this foedus knows {SCHEMA_VERSION}",
            hint="upgrade foedus at this site",
        )
