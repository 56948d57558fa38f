"""Runs as the database remembers them.

States are monotone and terminal ones final: every change names the states it may start from, in
the same statement that makes it, so that a late writer can never undo a decision.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from ..clock import Clock
from ..errors import RunStateError
from ..plan import Plan
from .history import Run, RunState, run_from
from .journal import append_event
from .store import Store


@dataclass(frozen=True, slots=True)
class RunRecords:
    """Queries and named transactions over runs; every change is journalled with it."""

    store: Store
    clock: Clock

    def create(self, plan: Plan, initial_sha256: str) -> Run:
        """Record a new run, queued."""
        id = secrets.token_hex(6)
        with self.store.transaction("creating a run") as db:
            db.execute(
                "INSERT INTO runs VALUES (?, ?, 'queued', '', ?, ?, ?, NULL, NULL)",
                (id, plan.name, plan.model_dump_json(), self.clock.now(), initial_sha256),
            )
            append_event(db, self.clock.now(), "run_created", {"run": id, "plan": plan.name})
        return self.find(id)

    def find(self, id: str) -> Run:
        """The run with this id, or with this unique beginning of an id.

        Raises:
            NotFound: no run, or more than one, begins so.
        """
        return run_from(self.store.beginning_with(id, "runs", "run", "'foedus run ls' lists them"))

    def all(self, states: Iterable[RunState] = RunState) -> list[Run]:
        """All runs in these states, oldest first."""
        wanted = tuple(states)
        marks = ", ".join("?" * len(wanted))
        query = f"SELECT * FROM runs WHERE state IN ({marks}) ORDER BY created, id"  # noqa: S608
        return [run_from(row) for row in self.store.query(query, *wanted)]

    def recent(self, number: int) -> list[Run]:
        """The newest runs, newest first."""
        rows = self.store.query("SELECT * FROM runs ORDER BY created DESC, id DESC LIMIT ?", number)
        return [run_from(row) for row in rows]

    def move(self, id: str, to: RunState, *, allowed: Iterable[RunState], reason: str = "") -> Run:
        """Change a run's state, if its present state is among ``allowed``.

        Raises:
            RunStateError: it is in another state; nothing changed.
        """
        states = tuple(allowed)
        marks = ", ".join("?" * len(states))
        with self.store.transaction(f"setting run {id} to {to}") as db:
            changed = db.execute(
                f"UPDATE runs SET state = ?, reason = ? WHERE id = ? AND state IN ({marks})",  # noqa: S608
                (to, reason, id, *states),
            ).rowcount
            if changed:
                append_event(db, self.clock.now(), f"run_{to}", {"run": id, "reason": reason})
        run = self.find(id)
        if not changed:
            raise RunStateError(
                f"run {id} is {run.state} and cannot become {to}", hint=f"that is possible from {', '.join(states)}"
            )
        return run

    def explain(self, id: str, reason: str) -> None:
        """Say what a run is waiting for, without changing its state."""
        with self.store.transaction(f"explaining run {id}") as db:
            db.execute("UPDATE runs SET reason = ? WHERE id = ? AND reason <> ?", (reason, id, reason))

    def blobs_in_use(self) -> set[str]:
        """Digests of the models and of the optimizers' and aggregators' states that any run still needs."""
        rows = self.store.query(
            """
            SELECT initial_sha256 AS sha256 FROM runs UNION SELECT best_sha256 FROM runs
            UNION SELECT model_sha256 FROM rounds r WHERE number =
                (SELECT max(number) FROM rounds WHERE run = r.run AND model_sha256 IS NOT NULL)
            UNION SELECT optimizer_sha256 FROM rounds r WHERE number =
                (SELECT max(number) FROM rounds WHERE run = r.run AND model_sha256 IS NOT NULL)
            UNION SELECT aggregator_sha256 FROM rounds r WHERE number =
                (SELECT max(number) FROM rounds WHERE run = r.run AND model_sha256 IS NOT NULL)
            UNION SELECT base_sha256 FROM rounds WHERE state IN ('collecting', 'closed')
            UNION SELECT base_aggregator_sha256 FROM rounds WHERE state IN ('collecting', 'closed')
            UNION SELECT base_optimizer_sha256 FROM rounds WHERE state IN ('collecting', 'closed')
            """
        )
        return {row["sha256"] for row in rows if row["sha256"]}
