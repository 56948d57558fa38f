"""Runs, rounds and participations as the database remembers them.

States are monotone and terminal ones final: every change names the states it may start from, in
the same statement that makes it, so that a late writer can never undo a decision.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping

from ..clock import Clock
from ..errors import InvalidUpdate, NotFound, RunStateError
from ..plan import Plan
from ..protos.messages import Phase, UploadHeader, Work
from .history import (
    LEFT_OUT,
    Judgement,
    Participation,
    Round,
    RoundState,
    Run,
    RunState,
    Verdict,
    participation_from,
    round_from,
    run_from,
)
from .journal import append_event
from .registry import judge_sites
from .store import Store


class Records:
    """Queries and named transactions over runs; every change is journalled with it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # Runs

    def create_run(self, plan: Plan, initial_sha256: str) -> Run:
        """Record a new run, queued."""
        id = secrets.token_hex(6)
        with self._store.transaction("creating a run") as db:
            db.execute(
                "INSERT INTO runs VALUES (?, ?, 'queued', '', ?, ?, ?, NULL, NULL)",
                (id, plan.name, plan.model_dump_json(), self._clock.now(), initial_sha256),
            )
            self._event(db, "run_created", run=id, plan=plan.name)
        return self.run(id)

    def run(self, id: str) -> Run:
        """The run with this id, or with this unique beginning of an id.

        Raises:
            NotFound: no run, or more than one, begins so.
        """
        rows = self._store.query("SELECT * FROM runs WHERE substr(id, 1, ?) = ?", len(id), id) if id else []
        if len(rows) != 1:
            kind = "no run" if not rows else "more than one run"
            raise NotFound(f"{kind} has an id beginning with {id[:64]!r}", hint="'foedus run ls' lists them")
        return run_from(rows[0])

    def runs(self, states: Iterable[RunState] = RunState) -> list[Run]:
        """All runs in these states, oldest first."""
        wanted = tuple(states)
        marks = ", ".join("?" * len(wanted))
        query = f"SELECT * FROM runs WHERE state IN ({marks}) ORDER BY created, id"  # noqa: S608
        return [run_from(row) for row in self._store.query(query, *wanted)]

    def recent_runs(self, number: int) -> list[Run]:
        """The newest runs, newest first."""
        rows = self._store.query("SELECT * FROM runs ORDER BY created DESC, id DESC LIMIT ?", number)
        return [run_from(row) for row in rows]

    def move_run(self, id: str, to: RunState, *, allowed: Iterable[RunState], reason: str = "") -> Run:
        """Change a run's state, if its present state is among ``allowed``.

        Raises:
            RunStateError: it is in another state; nothing changed.
        """
        states = tuple(allowed)
        marks = ", ".join("?" * len(states))
        with self._store.transaction(f"setting run {id} to {to}") as db:
            changed = db.execute(
                f"UPDATE runs SET state = ?, reason = ? WHERE id = ? AND state IN ({marks})",  # noqa: S608
                (to, reason, id, *states),
            ).rowcount
            if changed:
                self._event(db, f"run_{to}", run=id, reason=reason)
        run = self.run(id)
        if not changed:
            raise RunStateError(
                f"run {id} is {run.state} and cannot become {to}", hint=f"that is possible from {', '.join(states)}"
            )
        return run

    def explain_run(self, id: str, reason: str) -> None:
        """Say what a run is waiting for, without changing its state."""
        with self._store.transaction(f"explaining run {id}") as db:
            db.execute("UPDATE runs SET reason = ? WHERE id = ? AND reason <> ?", (reason, id, reason))

    # Rounds

    def rounds(self, run: str) -> list[Round]:
        """A run's rounds in order."""
        return [round_from(row) for row in self._store.query("SELECT * FROM rounds WHERE run = ? ORDER BY number", run)]

    def last_model(self, run: str) -> tuple[int, str] | None:
        """The number and the model's digest of a run's newest committed round, or None before the first."""
        rows = self._store.query(
            "SELECT number, model_sha256 FROM rounds WHERE run = ? AND model_sha256 IS NOT NULL "
            "ORDER BY number DESC LIMIT 1",
            run,
        )
        return (rows[0]["number"], rows[0]["model_sha256"]) if rows else None

    def last_round(self, run: str) -> Round | None:
        """A run's newest round, or None before the first."""
        rows = self._store.query("SELECT * FROM rounds WHERE run = ? ORDER BY number DESC LIMIT 1", run)
        return round_from(rows[0]) if rows else None

    def round(self, run: str, number: int) -> Round | None:
        """One round."""
        rows = self._store.query("SELECT * FROM rounds WHERE run = ? AND number = ?", run, number)
        return round_from(rows[0]) if rows else None

    def participations(self, run: str, round: int, phase: Phase) -> list[Participation]:
        """Who was asked in a phase of a round and what became of it, by site name."""
        rows = self._store.query(
            "SELECT * FROM participations WHERE run = ? AND round = ? AND phase = ? ORDER BY site", run, round, phase
        )
        return [participation_from(row) for row in rows]

    def participation(self, work: Work, site: str) -> Participation | None:
        """One site's part in a piece of work, or None if it was never asked."""
        rows = self._store.query(
            "SELECT * FROM participations WHERE run = ? AND round = ? AND phase = ? AND site = ?",
            work.run,
            work.round,
            work.phase,
            site,
        )
        return participation_from(rows[0]) if rows else None

    def took_part(self, run: str, site: str) -> bool:
        """Whether a site was ever asked for anything in a run."""
        return bool(self._store.query("SELECT 1 FROM participations WHERE run = ? AND site = ? LIMIT 1", run, site))

    def open_round(
        self,
        run: str,
        number: int,
        *,
        available: Iterable[str],
        cohort: Iterable[str],
        target: int,
        quorum: int,
        base_sha256: str,
        base_optimizer_sha256: str | None,
        base_aggregator_sha256: str | None,
        keeps_accepted: bool = True,
    ) -> Round:
        """Record a round and its cohort before anybody is asked.

        A further attempt at the same round keeps the updates that were accepted, since they start from
        the same model; unless they are masked, for which a further attempt has other keys.
        """
        with self._store.transaction(f"opening round {number} of run {run}") as db:
            db.execute(
                "INSERT INTO rounds (run, number, state, reason, attempt, target, quorum, available, base_sha256, "
                "base_optimizer_sha256, base_aggregator_sha256, started, training_metrics, evaluation_metrics) "
                "VALUES (?, ?, 'collecting', '', 1, ?, ?, ?, ?, ?, ?, ?, '{}', '{}') "
                "ON CONFLICT DO UPDATE SET attempt = attempt + 1, target = excluded.target, "
                "quorum = excluded.quorum, available = excluded.available, reason = ''",
                (
                    run,
                    number,
                    target,
                    quorum,
                    json.dumps(sorted(available)),
                    base_sha256,
                    base_optimizer_sha256,
                    base_aggregator_sha256,
                    self._clock.now(),
                ),
            )
            db.execute(
                "DELETE FROM participations WHERE run = ? AND round = ? AND phase = 'train' "
                "AND NOT (? AND verdict = 'accepted')",
                (run, number, keeps_accepted),
            )
            self._ask(db, Work(run, number, Phase.TRAIN), cohort)
            self._event(db, "round_opened", run=run, round=number, cohort=sorted(cohort))
        return self._existing_round(run, number)

    def fail_round(self, run: str, number: int, reason: str) -> None:
        """Note why an attempt at a round failed; the round stays open for another."""
        with self._store.transaction(f"failing round {number} of run {run}") as db:
            db.execute("UPDATE rounds SET reason = ? WHERE run = ? AND number = ?", (reason, run, number))
            self._event(db, "round_failed", run=run, round=number, reason=reason)

    def close_round(self, run: str, number: int, absent: Mapping[str, str]) -> Round:
        """Fix whose updates count, before they are combined; ``absent`` says why each missing site is."""
        with self._store.transaction(f"closing round {number} of run {run}") as db:
            self._mark_absent(db, Work(run, number, Phase.TRAIN), absent)
            db.execute(
                "UPDATE rounds SET state = 'closed' WHERE run = ? AND number = ? AND state = 'collecting'",
                (run, number),
            )
            self._event(db, "round_closed", run=run, round=number, absent=sorted(absent))
        return self._existing_round(run, number)

    def commit_round(
        self,
        run: str,
        number: int,
        *,
        model_sha256: str,
        optimizer_sha256: str | None,
        aggregator_sha256: str | None,
        metrics: Mapping[str, float],
        judgements: Mapping[str, Judgement],
        memory: float,
        evaluates: bool = True,
    ) -> Round:
        """Advance the run by one model: digests, metrics, what became of each update, and the event at once.

        What became of it, and of those that were worthless on arrival, also counts in the standing of its
        site, which keeps ``memory`` of what it was. A round that is not to be evaluated is complete with that.
        A round that is committed already stays as it is.
        """
        with self._store.transaction(f"committing round {number} of run {run}") as db:
            changed = db.execute(
                "UPDATE rounds SET state = ?, model_sha256 = ?, optimizer_sha256 = ?, aggregator_sha256 = ?, "
                "training_metrics = ?, finished = ? WHERE run = ? AND number = ? AND state = 'closed'",
                (
                    RoundState.COMMITTED if evaluates else RoundState.EVALUATED,
                    model_sha256,
                    optimizer_sha256,
                    aggregator_sha256,
                    json.dumps(dict(metrics)),
                    self._clock.now(),
                    run,
                    number,
                ),
            ).rowcount
            if changed:
                self._judge(db, run, judgements)
                against = {site: bool(judged.reason) for site, judged in judgements.items()}
                judge_sites(db, against | dict.fromkeys(self.worthless(run, number), True), memory)
                self._event(
                    db,
                    "round_committed",
                    run=run,
                    round=number,
                    model=model_sha256,
                    weights={site: judged.weight for site, judged in judgements.items()},
                    left_out={site: judged.score for site, judged in judgements.items() if judged.reason},
                )
        return self._existing_round(run, number)

    def worthless(self, run: str, number: int) -> list[str]:
        """The sites that sent an update in a round whose values were refused on arrival."""
        rows = self._store.query(
            "SELECT site FROM participations WHERE run = ? AND round = ? AND phase = 'train' "
            "AND verdict = 'rejected' AND code = ? ORDER BY site",
            run,
            number,
            InvalidUpdate.__name__,
        )
        return [row["site"] for row in rows]

    def ask_evaluation(self, run: str, number: int, cohort: Iterable[str]) -> None:
        """Record who is asked to evaluate a round's model."""
        with self._store.transaction(f"asking for evaluations of round {number} of run {run}") as db:
            self._ask(db, Work(run, number, Phase.EVALUATE), cohort)

    def finish_evaluation(
        self,
        run: str,
        number: int,
        *,
        metrics: Mapping[str, float],
        absent: Mapping[str, str],
        best: tuple[str, float] | None,
    ) -> Round:
        """Close a round's evaluation; ``best`` is (model digest, value) when it beats the best so far."""
        with self._store.transaction(f"evaluating round {number} of run {run}") as db:
            self._mark_absent(db, Work(run, number, Phase.EVALUATE), absent)
            db.execute(
                "UPDATE rounds SET state = 'evaluated', evaluation_metrics = ?, finished = ? "
                "WHERE run = ? AND number = ? AND state = 'committed'",
                (json.dumps(dict(metrics)), self._clock.now(), run, number),
            )
            if best is not None:
                db.execute("UPDATE runs SET best_sha256 = ?, best_value = ? WHERE id = ?", (*best, run))
            self._event(db, "round_evaluated", run=run, round=number, metrics=dict(metrics))
        return self._existing_round(run, number)

    # What sites send

    def settle(
        self,
        work: Work,
        site: str,
        verdict: Verdict,
        *,
        code: str = "",
        reason: str = "",
        num_examples: int = 0,
        metrics: Mapping[str, float] | None = None,
        upload: UploadHeader | None = None,
    ) -> None:
        """Record what became of a site that was asked (or, for late updates, had been absent)."""
        if upload is not None:
            num_examples, metrics = upload.num_examples, upload.metrics
        with self._store.transaction(f"recording {site} in {work}") as db:
            db.execute(
                "UPDATE participations SET verdict = ?, code = ?, reason = ?, num_examples = ?, num_steps = ?, "
                "sha256 = ?, metrics = ? WHERE run = ? AND round = ? AND phase = ? AND site = ?",
                (
                    verdict,
                    code,
                    reason,
                    num_examples,
                    upload.num_steps if upload else 0,
                    upload.sha256 if upload else None,
                    json.dumps(dict(metrics or {})),
                    work.run,
                    work.round,
                    work.phase,
                    site,
                ),
            )
            self._event(db, f"work_{verdict}", run=work.run, round=work.round, phase=work.phase, site=site, code=code)

    def ask_again(self, work: Work, site: str) -> None:
        """Forget an accepted update whose file was lost or damaged, so that the site is asked anew."""
        with self._store.transaction(f"asking {site} again for {work}") as db:
            db.execute(
                "UPDATE participations SET verdict = 'asked', sha256 = NULL "
                "WHERE run = ? AND round = ? AND phase = ? AND site = ?",
                (work.run, work.round, work.phase, site),
            )
            db.execute(
                "UPDATE rounds SET state = 'collecting' WHERE run = ? AND number = ? AND state = 'closed'",
                (work.run, work.round),
            )
            self._event(db, "work_asked_again", run=work.run, round=work.round, site=site)

    def blobs_in_use(self) -> set[str]:
        """Digests of the models and of the optimizers' and aggregators' states that any run still needs."""
        rows = self._store.query(
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

    def _existing_round(self, run: str, number: int) -> Round:
        round = self.round(run, number)
        if round is None:
            raise NotFound(f"run {run} has no round {number}")
        return round

    def _ask(self, db: sqlite3.Connection, work: Work, cohort: Iterable[str]) -> None:
        db.executemany(
            "INSERT INTO participations "
            "(run, round, phase, site, verdict, code, reason, num_examples, num_steps, metrics) "
            "VALUES (?, ?, ?, ?, 'asked', '', '', 0, 0, '{}') ON CONFLICT DO NOTHING",
            [(work.run, work.round, work.phase, site) for site in cohort],
        )

    def _mark_absent(self, db: sqlite3.Connection, work: Work, absent: Mapping[str, str]) -> None:
        db.executemany(
            "UPDATE participations SET verdict = 'absent', reason = ? "
            "WHERE run = ? AND round = ? AND phase = ? AND site = ? AND verdict = 'asked'",
            [(reason, work.run, work.round, work.phase, site) for site, reason in absent.items()],
        )

    def _judge(self, db: sqlite3.Connection, run: str, judgements: Mapping[str, Judgement]) -> None:
        db.executemany(
            "UPDATE participations SET weight = ?, score = ? "
            "WHERE run = ? AND round = ? AND phase = 'train' AND site = ?",
            [(judged.weight, judged.score, run, judged.round, site) for site, judged in judgements.items()],
        )
        db.executemany(
            "UPDATE participations SET verdict = 'rejected', code = ?, reason = ? "
            "WHERE run = ? AND round = ? AND phase = 'train' AND site = ?",
            [
                (LEFT_OUT, judged.reason, run, judged.round, site)
                for site, judged in judgements.items()
                if judged.reason
            ],
        )

    def _event(self, db: sqlite3.Connection, event: str, /, **fields: object) -> None:
        append_event(db, self._clock.now(), event, fields)
