"""The database: all or nothing, never older than its reader; and a journal that shows tampering."""

from __future__ import annotations

import sqlite3

import pytest
from foedus.clock import ManualClock
from foedus.errors import Corrupt, SchemaTooNew, StoreError
from foedus.server import store as store_module
from foedus.server.journal import append_event, verify_journal
from foedus.server.store import MIGRATIONS, Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "foedus.db")
    yield store
    store.close()


def add(store, *names):
    for name in names:
        with store.transaction("noting") as db:
            append_event(db, ManualClock().now(), name, {"site": name, "n": 1})


def test_a_new_file_has_the_newest_schema(store):
    assert store.query("PRAGMA user_version")[0][0] == len(MIGRATIONS)
    assert store.query("PRAGMA journal_mode")[0][0] == "wal"
    assert store.query("PRAGMA synchronous")[0][0] == 2


def test_opening_again_keeps_what_is_there(tmp_path):
    first = Store(tmp_path / "foedus.db")
    add(first, "a")
    first.close()
    second = Store(tmp_path / "foedus.db")
    assert verify_journal(second)[0] == 1
    second.close()


def test_an_older_file_is_migrated_and_a_broken_migration_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "foedus.db"
    Store(path).close()
    newer = (*MIGRATIONS, "CREATE TABLE extra (x TEXT) STRICT;")
    monkeypatch.setattr(store_module, "MIGRATIONS", (*newer, "CREATE TABLE half (x TEXT); THIS IS NOT SQL;"))
    with pytest.raises(StoreError):
        Store(path)
    monkeypatch.setattr(store_module, "MIGRATIONS", newer)
    store = Store(path)
    assert store.query("SELECT * FROM extra") == []
    assert store.query("SELECT name FROM sqlite_master WHERE name = 'half'") == []
    assert store.query("PRAGMA user_version")[0][0] == len(newer)
    store.close()


def test_a_newer_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "foedus.db"
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(SchemaTooNew, match=f"version {len(MIGRATIONS) + 1}") as caught:
        Store(path)
    assert caught.value.hint


def test_what_is_no_database_is_corrupt(tmp_path):
    path = tmp_path / "foedus.db"
    path.write_bytes(b"this is no database, and long enough to be looked at " * 100)
    with pytest.raises(Corrupt, match="opening the database"):
        Store(path)


def test_a_transaction_that_fails_leaves_nothing(store):
    def failing(sql):
        with store.transaction("failing") as db:
            append_event(db, 0.0, "never", {})
            db.execute(sql)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing("SELECT 1")
    with pytest.raises(StoreError, match="failing: no such table"):
        failing("INSERT INTO nowhere VALUES (1)")
    assert store.query("SELECT * FROM events") == []
    add(store, "afterwards")
    assert verify_journal(store)[0] == 1


@pytest.mark.adversarial
@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE events SET name = 'b2' WHERE seq = 2",
        "UPDATE events SET fields = replace(fields, '1', '2') WHERE seq = 2",
        "UPDATE events SET unix_seconds = unix_seconds + 1 WHERE seq = 2",
        "UPDATE events SET digest = substr(digest, 2) || 'x' WHERE seq = 3",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events WHERE seq = 1",
        "INSERT INTO events SELECT 9, unix_seconds, name, fields, digest FROM events WHERE seq = 1",
        "UPDATE events SET seq = 99 WHERE seq = 1",
    ],
)
def test_tampering_shows(store, tampering):
    add(store, "a", "b", "c")
    count, head = verify_journal(store)
    assert (count, len(head)) == (3, 64)
    with store.transaction("tampering") as db:
        db.execute(tampering)
    with pytest.raises(Corrupt, match="does not follow"):
        verify_journal(store)


def test_a_journal_that_was_cut_off_has_another_head(store):
    """The chain alone cannot show it; whoever keeps the head somewhere else sees it."""
    add(store, "a", "b")
    head = verify_journal(store)
    with store.transaction("cutting") as db:
        db.execute("DELETE FROM events WHERE seq = 2")
    assert verify_journal(store) != head
    with pytest.raises(Corrupt, match="none of the journal's 1 entries has the digest"):
        verify_journal(store, noted=head[1])


def test_a_digest_that_was_noted_is_found_again(store):
    add(store, "a")
    _, noted = verify_journal(store)
    add(store, "b")
    assert verify_journal(store, noted)[0] == 2


def test_a_reader_beside_the_server_cannot_write(store):
    add(store, "a")
    reader = Store(store.path, read_only=True)
    assert verify_journal(reader) == verify_journal(store)
    add(store, "b")
    assert verify_journal(reader)[0] == 2
    with pytest.raises(StoreError, match="readonly"):
        add(reader, "c")
    reader.close()
