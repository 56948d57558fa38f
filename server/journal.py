"""The hash-chained journal: who did what, in the same transaction as the deed.

Each entry's digest is SHA-256(previous digest ‖ canonical entry), so that no entry can be changed
or removed from the middle without every later digest changing.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping

from ..errors import Corrupt
from .store import Store

GENESIS = "0" * 64


def append_event(db: sqlite3.Connection, unix_seconds: float, name: str, fields: Mapping[str, object]) -> None:
    """Add an entry, inside the transaction that the entry is about."""
    last = db.execute("SELECT digest FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    text = json.dumps(dict(fields), sort_keys=True, separators=(",", ":"), default=str)
    digest = _digest(last["digest"] if last else GENESIS, unix_seconds, name, text)
    db.execute(
        "INSERT INTO events (unix_seconds, name, fields, digest) VALUES (?, ?, ?, ?)",
        (unix_seconds, name, text, digest),
    )


def verify_journal(store: Store, noted: str = GENESIS) -> tuple[int, str]:
    """Check the whole chain; the number of entries and the digest of the last.

    ``noted`` is the digest that the last entry had at an earlier time: without it, nobody can tell
    whether the chain was cut off after some entry, or written anew from there.

    Raises:
        Corrupt: an entry does not follow from the one before, or none has the digest that was noted.
    """
    head, count, found = GENESIS, 0, noted == GENESIS
    for row in store.query("SELECT * FROM events ORDER BY seq"):
        head = _digest(head, row["unix_seconds"], row["name"], row["fields"])
        if head != row["digest"]:
            raise Corrupt(f"journal entry {row['seq']} ({row['name']}) does not follow from the one before it")
        count += 1
        found = found or head == noted
    if not found:
        raise Corrupt(f"none of the journal's {count} entries has the digest {noted[:12]}… that was noted")
    return count, head


def _digest(previous: str, unix_seconds: float, name: str, fields: str) -> str:
    return hashlib.sha256(f"{previous}\n{unix_seconds!r}\n{name}\n{fields}".encode()).hexdigest()
