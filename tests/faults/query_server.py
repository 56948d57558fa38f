"""A server that kills itself around a chosen transaction of a query.

Run as ``python query_server.py ORDERS server up HOME``. The file ``kill`` in the folder ORDERS, read and removed when a
query is created, holds a JSON list: a part of the transaction's name, the how manieth such one since then (from 0), and
whether the process gets SIGKILL "before" or "after" it is durable. Each answer is kept in ORDERS before it is recorded.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foedus.cli import main
from foedus.server import query_records, store

ORDERS = Path(sys.argv[1])
WANTED: list[Any] = []


def kill_at(name: str, side: str) -> None:
    if WANTED and WANTED[0] in name and WANTED[2] == side:
        if WANTED[1] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        WANTED[1] -= 1


def watch_transactions() -> None:
    real = store.Store.transaction

    @contextmanager
    def watched(self: store.Store, name: str) -> Iterator[sqlite3.Connection]:
        if name == "creating a query" and (ORDERS / "kill").exists():
            WANTED[:] = json.loads((ORDERS / "kill").read_text())
            (ORDERS / "kill").unlink()
        with real(self, name) as db:
            yield db
            kill_at(name, "before")
        kill_at(name, "after")

    store.Store.transaction = watched  # type: ignore[method-assign]


def keep_answers() -> None:
    real = query_records.QueryRecords.answer

    def kept(self: query_records.QueryRecords, id: str, answers: Any, verdicts: Any) -> Any:
        (ORDERS / f"{id}-{time.time_ns()}").write_text(answers.to_json())
        return real(self, id, answers, verdicts)

    query_records.QueryRecords.answer = kept  # type: ignore[method-assign]


if __name__ == "__main__":
    watch_transactions()
    keep_answers()
    sys.argv = ["foedus", *sys.argv[2:]]
    main()
