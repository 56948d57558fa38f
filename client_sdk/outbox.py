"""What a site still owes the server, durable: no round is trained twice, no upload is lost.

A piece of work goes training → ready → delivered → released. The update lies in a file that is
whole before its row says ``ready``, and leaves only after its row says ``released``; so whatever
the moment of a crash, the next ``open`` finds the whole parcel or none. Files are checked by their
digest then, so that they need not be forced to the disk: a power cut costs at most training again.
The row of a released round stays: it is what the policy's number of rounds is counted from.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..clock import Clock
from ..errors import ProtocolError, StaleRound
from ..files import lock_folder, private_folder, replacing, sha256_file, storing, sync_folder
from ..protos.messages import Receipt, UploadHeader
from .outbox_rows import database_errors, open_table, transaction
from .parcel import Parcel

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What is said about an update, besides its bytes."""

    layout_sha256: str
    num_examples: int
    num_steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Outbox:
    """The outbox of one site; only one process may have it open. Its methods may run in any thread.

    Ask ``find`` before anything else when work is announced: what was trained needs neither
    permission nor training again, only delivery.
    """

    _folder: Path
    _clock: Clock
    _db: sqlite3.Connection
    _guard: int
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @staticmethod
    def open(folder: Path, clock: Clock) -> Outbox:
        """Open the outbox and set right what a crash left behind.

        Raises:
            StoreError: it cannot be opened, or another process has it open.
            SchemaTooNew: a newer foedus wrote it.
        """
        private_folder(folder)
        guard = lock_folder(folder, hint="stop the other foedus site that runs in this home")
        try:
            outbox = Outbox(folder, clock, open_table(folder / "outbox.sqlite"), guard)
        except BaseException:
            os.close(guard)
            raise
        try:
            outbox._recover()
        except BaseException:
            outbox.close()
            raise
        return outbox

    def close(self) -> None:
        """Let another process open it."""
        with self._lock:
            self._db.close()
            with suppress(OSError):
                os.close(self._guard)

    def begin(self, run: str, round: int, model_sha256: str, seed: int, order_sha256: str = "") -> None:
        """Note that training starts. Repeating it is harmless; another model or order starts the round afresh.

        Raises:
            StaleRound: this round is done: the server accepted an update for it and released it,
                or one from this very model and order lies ready.
            ProtocolError: the run's id cannot be used as a file name.
        """
        _require_name(run)
        with self._change() as db:
            row = self._row(run, round)
            if row is not None and row["state"] == "released" and row["accepted"]:
                raise StaleRound(f"round {round} of run {run} was counted already, it is not trained again")
            same = row is not None and (row["model_sha256"], row["order_sha256"]) == (model_sha256, order_sha256)
            if row is not None and row["state"] in ("ready", "delivered") and same:
                raise StaleRound(f"the update for round {round} of run {run} lies ready, it is not trained again")
            db.execute(
                "INSERT OR REPLACE INTO work (run, round, model_sha256, seed, order_sha256, state, began) "
                "VALUES (?, ?, ?, ?, ?, 'training', ?)",
                (run, round, model_sha256, seed, order_sha256, self._clock.now()),
            )
        # Bytes that belong to no row any more.
        with storing(f"removing the old update for round {round} of run {run}"):
            self._path(run, round).unlink(missing_ok=True)

    def put(
        self, run: str, round: int, model_sha256: str, blocks: Iterable[bytes | memoryview], trained: Trained
    ) -> Parcel:
        """Keep an update; from here on no crash of this process loses it.

        ``blocks`` are written as they come and never held together (``outbound.update_blocks``).
        Whatever they raise passes through, and nothing is kept.

        Raises:
            StaleRound: ``begin`` was not called for this round and model.
            DiskFull, StoreError: it could not be written; the round is still to be trained.
        """
        self._require(run, round, model_sha256, "training")
        digest, num_bytes = hashlib.sha256(), 0
        # Not forced to the disk: only a power cut could lose it, which ``_recover`` finds out.
        with replacing(self._path(run, round), mode=0o600, durable=False) as file:
            for block in blocks:
                digest.update(block)
                file.write(block)
                num_bytes += len(block)
        with self._change() as db:
            self._require(run, round, model_sha256, "training")
            db.execute(
                "UPDATE work SET state = 'ready', layout_sha256 = ?, num_bytes = ?, sha256 = ?, num_examples = ?, "
                "num_steps = ?, metrics = ? WHERE run = ? AND round = ?",
                (
                    trained.layout_sha256,
                    num_bytes,
                    digest.hexdigest(),
                    trained.num_examples,
                    trained.num_steps,
                    json.dumps(dict(trained.metrics)),
                    run,
                    round,
                ),
            )
            return self._parcel(self._require(run, round, model_sha256, "ready"))

    def find(self, run: str, round: int, model_sha256: str, order_sha256: str | None = None) -> Parcel | None:
        """The update of this round that was trained from this model, if there is one; with an order, for that alone."""
        with self._reading():
            row = self._row(run, round)
            if row is None or row["model_sha256"] != model_sha256 or row["state"] not in ("ready", "delivered"):
                return None
            if order_sha256 is not None and row["order_sha256"] != order_sha256:
                return None
            return self._parcel(row)

    def pending(self) -> list[Parcel]:
        """The updates without a receipt, oldest first."""
        with self._reading():
            rows = self._db.execute("SELECT * FROM work WHERE state = 'ready' ORDER BY began, run, round").fetchall()
            return [self._parcel(row) for row in rows]

    def delivered(self, run: str, round: int, model_sha256: str, receipt: Receipt) -> Parcel:
        """Note the server's decision. The last one stands, should the server decide again.

        Raises:
            StaleRound: there is no such update.
        """
        with self._change() as db:
            parcel = self._parcel(self._require(run, round, model_sha256, "ready", "delivered"))
            db.execute(
                "UPDATE work SET state = 'delivered', accepted = ?, code = ?, reason = ? WHERE run = ? AND round = ?",
                (receipt.accepted, receipt.code, receipt.reason, run, round),
            )
            return replace(parcel, receipt=receipt)

    def release(self, run: str, round: int) -> None:
        """Drop the bytes and keep the tombstone; a round that was never finished leaves nothing.

        Repeating it is harmless, and so is releasing what was never begun.
        """
        _require_name(run)
        with self._change() as db:
            db.execute("DELETE FROM work WHERE run = ? AND round = ? AND state = 'training'", (run, round))
            db.execute("UPDATE work SET state = 'released' WHERE run = ? AND round = ?", (run, round))
        with storing(f"removing the update for round {round} of run {run}"):
            self._path(run, round).unlink(missing_ok=True)

    def kept(self, run: str, through: int) -> list[int]:
        """The rounds of a run, up to and including ``through``, that are not released."""
        with self._reading():
            query = "SELECT round FROM work WHERE run = ? AND round <= ? AND state != 'released'"
            return [int(row[0]) for row in self._db.execute(query, (run, through))]

    def rounds_done(self, run: str) -> int:
        """In how many rounds of a run this site has finished training."""
        with self._reading():
            query = "SELECT count(*) FROM work WHERE run = ? AND state != 'training'"
            return int(self._db.execute(query, (run,)).fetchone()[0])

    def _recover(self) -> None:
        with self._change() as db:
            rows = db.execute("SELECT * FROM work WHERE state IN ('ready', 'delivered')").fetchall()
            kept: set[str] = set()
            for row in rows:
                path = self._path(row["run"], row["round"])
                if _intact(path, row["num_bytes"], row["sha256"]):
                    kept.add(path.name)
                elif row["state"] == "ready":
                    db.execute(
                        "UPDATE work SET state = 'training' WHERE run = ? AND round = ?", (row["run"], row["round"])
                    )
                else:
                    db.execute(
                        "UPDATE work SET state = 'released' WHERE run = ? AND round = ?", (row["run"], row["round"])
                    )
        with storing(f"clearing {self._folder}"):
            for path in self._folder.iterdir():
                orphan = path.name.endswith(".update") and path.name not in kept
                if orphan or path.name.endswith(".tmp"):
                    path.unlink()
            sync_folder(self._folder)

    def _path(self, run: str, round: int) -> Path:
        return self._folder / f"{run}-{round}.update"

    def _row(self, run: str, round: int) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(
            "SELECT * FROM work WHERE run = ? AND round = ?", (run, round)
        ).fetchone()
        return row

    def _require(self, run: str, round: int, model_sha256: str, *states: str) -> sqlite3.Row:
        with self._reading():
            row = self._row(run, round)
        if row is None or row["model_sha256"] != model_sha256 or row["state"] not in states:
            state = "unknown" if row is None else row["state"]
            raise StaleRound(f"round {round} of run {run} is {state} here, expected {' or '.join(states)}")
        return row

    def _parcel(self, row: sqlite3.Row) -> Parcel:
        header = UploadHeader(
            run=row["run"],
            round=row["round"],
            model_sha256=row["model_sha256"],
            layout_sha256=row["layout_sha256"],
            num_bytes=row["num_bytes"],
            sha256=row["sha256"],
            num_examples=row["num_examples"],
            num_steps=row["num_steps"],
            metrics=json.loads(row["metrics"]),
        )
        receipt = None if row["accepted"] is None else Receipt(bool(row["accepted"]), row["code"], row["reason"])
        return Parcel(header, self._path(row["run"], row["round"]), row["seed"], receipt)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, database_errors(self._folder):
            yield

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._lock, database_errors(self._folder), transaction(self._db):
            yield self._db


def _require_name(run: str) -> None:
    if not _RUN.fullmatch(run):
        raise ProtocolError(f"the run's id is {run[:80]!r}, expected letters, digits, dots, dashes and underscores")


def _intact(path: Path, num_bytes: int, sha256: str) -> bool:
    try:
        return path.stat().st_size == num_bytes and sha256_file(path) == sha256
    except OSError:
        return False
