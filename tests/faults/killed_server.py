"""A server that kills itself at a chosen durable step.

Run as ``python killed_server.py ORDERS server up HOME``. Steps are counted from the moment a run is
created. The folder ORDERS may hold ``kill-at``, a number read at that moment: the process gets
SIGKILL at that step; the number of the last step is kept in ``steps`` there. Without ``go`` on the
standard input nothing begins, so that the imports can be done ahead of time.

A step is what leaves a trace on the disk: before and after a transaction's commit, and before a
rename, an fsync, an unlink and the removal of a folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foedus.cli import main
from foedus.server import app, store

ORDERS = Path(sys.argv[1])


class Steps:
    """Counts, and kills."""

    def __init__(self) -> None:
        self.done: int | None = None
        self.kill_at = 0

    def begin(self) -> None:
        orders = ORDERS / "kill-at"
        self.kill_at = int(orders.read_text()) if orders.exists() else 0
        orders.unlink(missing_ok=True)
        self.done = 0

    def step(self, what: str) -> None:
        if self.done is None:
            return
        self.done += 1
        with REAL["open"](ORDERS / "steps", "a") as file:
            file.write(f"{self.done} {what}\n")
        if self.done == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


REAL: dict[str, Any] = {"open": open}
STEPS = Steps()


def counting(owner: Any, name: str) -> None:
    real = getattr(owner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        STEPS.step(f"{name} {args[0]}")
        return real(*args, **kwargs)

    setattr(owner, name, counted)


def count_transactions() -> None:
    real = store.Store.transaction

    @contextmanager
    def counted(self: store.Store, name: str) -> Iterator[sqlite3.Connection]:
        if name == "creating a run":
            STEPS.begin()
        with real(self, name) as db:
            yield db
            STEPS.step(f"before: {name}")
        STEPS.step(f"after: {name}")

    store.Store.transaction = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    assert app
    count_transactions()
    for owner, name in ((os, "replace"), (os, "fsync"), (os, "unlink"), (shutil, "rmtree")):
        counting(owner, name)
    if sys.stdin.readline() == "go\n":
        sys.argv = ["foedus", *sys.argv[2:]]
        main()
