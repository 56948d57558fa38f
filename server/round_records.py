"""Rounds as the database remembers them: opened, closed, committed, evaluated.

States are monotone, as those of runs are: what has been decided is never undone by a late writer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..clock import Clock
from ..errors import NotFound
from ..protos.messages import Phase, Work
from .history import Judgement, Round, RoundState, round_from
from .journal import append_event
from .participation_records import ParticipationRecords, ask, mark_absent, record_judgements
from .registry import judge_sites
from .store import Store


@dataclass(frozen=True, slots=True)
class RoundRecords:
    """Queries and named transactions over rounds; every change is journalled with it."""

    store: Store
    clock: Clock

    def all(self, run: str) -> list[Round]:
        """A run's rounds in order."""
        return [round_from(row) for row in self.store.query("SELECT * FROM rounds WHERE run = ? ORDER BY number", run)]

    def last_model(self, run: str) -> tuple[int, str] | None:
        """The number and the model's digest of a run's newest committed round, or None before the first."""
        rows = self.store.query(
            "SELECT number, model_sha256 FROM rounds WHERE run = ? AND model_sha256 IS NOT NULL "
            "ORDER BY number DESC LIMIT 1",
            run,
        )
        return (rows[0]["number"], rows[0]["model_sha256"]) if rows else None

    def last(self, run: str) -> Round | None:
        """A run's newest round, or None before the first."""
        rows = self.store.query("SELECT * FROM rounds WHERE run = ? ORDER BY number DESC LIMIT 1", run)
        return round_from(rows[0]) if rows else None

    def find(self, run: str, number: int) -> Round | None:
        """One round."""
        rows = self.store.query("SELECT * FROM rounds WHERE run = ? AND number = ?", run, number)
        return round_from(rows[0]) if rows else None

    def open(
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
        with self.store.transaction(f"opening round {number} of run {run}") as db:
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
                    self.clock.now(),
                ),
            )
            db.execute(
                "DELETE FROM participations WHERE run = ? AND round = ? AND phase = 'train' "
                "AND NOT (? AND verdict = 'accepted')",
                (run, number, keeps_accepted),
            )
            ask(db, Work(run, number, Phase.TRAIN), cohort)
            append_event(db, self.clock.now(), "round_opened", {"run": run, "round": number, "cohort": sorted(cohort)})
        return self._existing_round(run, number)

    def fail(self, run: str, number: int, reason: str) -> None:
        """Note why an attempt at a round failed; the round stays open for another."""
        with self.store.transaction(f"failing round {number} of run {run}") as db:
            db.execute("UPDATE rounds SET reason = ? WHERE run = ? AND number = ?", (reason, run, number))
            append_event(db, self.clock.now(), "round_failed", {"run": run, "round": number, "reason": reason})

    def close(self, run: str, number: int, absent: Mapping[str, str]) -> Round:
        """Fix whose updates count, before they are combined; ``absent`` says why each missing site is."""
        with self.store.transaction(f"closing round {number} of run {run}") as db:
            mark_absent(db, Work(run, number, Phase.TRAIN), absent)
            db.execute(
                "UPDATE rounds SET state = 'closed' WHERE run = ? AND number = ? AND state = 'collecting'",
                (run, number),
            )
            append_event(db, self.clock.now(), "round_closed", {"run": run, "round": number, "absent": sorted(absent)})
        return self._existing_round(run, number)

    def commit(
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
        with self.store.transaction(f"committing round {number} of run {run}") as db:
            changed = db.execute(
                "UPDATE rounds SET state = ?, model_sha256 = ?, optimizer_sha256 = ?, aggregator_sha256 = ?, "
                "training_metrics = ?, finished = ? WHERE run = ? AND number = ? AND state = 'closed'",
                (
                    RoundState.COMMITTED if evaluates else RoundState.EVALUATED,
                    model_sha256,
                    optimizer_sha256,
                    aggregator_sha256,
                    json.dumps(dict(metrics)),
                    self.clock.now(),
                    run,
                    number,
                ),
            ).rowcount
            if changed:
                record_judgements(db, run, judgements)
                against = {site: bool(judged.reason) for site, judged in judgements.items()}
                worthless = ParticipationRecords(self.store, self.clock).worthless(run, number)
                judge_sites(db, against | dict.fromkeys(worthless, True), memory)
                append_event(
                    db,
                    self.clock.now(),
                    "round_committed",
                    {
                        "run": run,
                        "round": number,
                        "model": model_sha256,
                        "weights": {site: judged.weight for site, judged in judgements.items()},
                        "left_out": {site: judged.score for site, judged in judgements.items() if judged.reason},
                    },
                )
        return self._existing_round(run, number)

    def ask_evaluation(self, run: str, number: int, cohort: Iterable[str]) -> None:
        """Record who is asked to evaluate a round's model."""
        with self.store.transaction(f"asking for evaluations of round {number} of run {run}") as db:
            ask(db, Work(run, number, Phase.EVALUATE), cohort)

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
        with self.store.transaction(f"evaluating round {number} of run {run}") as db:
            mark_absent(db, Work(run, number, Phase.EVALUATE), absent)
            db.execute(
                "UPDATE rounds SET state = 'evaluated', evaluation_metrics = ?, finished = ? "
                "WHERE run = ? AND number = ? AND state = 'committed'",
                (json.dumps(dict(metrics)), self.clock.now(), run, number),
            )
            if best is not None:
                db.execute("UPDATE runs SET best_sha256 = ?, best_value = ? WHERE id = ?", (*best, run))
            append_event(
                db, self.clock.now(), "round_evaluated", {"run": run, "round": number, "metrics": dict(metrics)}
            )
        return self._existing_round(run, number)

    def ask_again(self, work: Work, site: str) -> None:
        """Forget an accepted update whose file was lost or damaged, so that the site is asked anew."""
        with self.store.transaction(f"asking {site} again for {work}") as db:
            db.execute(
                "UPDATE participations SET verdict = 'asked', sha256 = NULL "
                "WHERE run = ? AND round = ? AND phase = ? AND site = ?",
                (work.run, work.round, work.phase, site),
            )
            db.execute(
                "UPDATE rounds SET state = 'collecting' WHERE run = ? AND number = ? AND state = 'closed'",
                (work.run, work.round),
            )
            append_event(db, self.clock.now(), "work_asked_again", {"run": work.run, "round": work.round, "site": site})

    def _existing_round(self, run: str, number: int) -> Round:
        round = self.find(run, number)
        if round is None:
            raise NotFound(f"run {run} has no round {number}")
        return round
