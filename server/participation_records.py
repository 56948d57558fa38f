"""Participations as the database remembers them: which sites were asked for what, and what became of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..clock import Clock
from ..errors import InvalidUpdate
from ..protos.messages import Phase, UploadHeader, Work
from .history import LEFT_OUT, Judgement, Participation, Verdict, participation_from
from .journal import append_event
from .store import Store


@dataclass(frozen=True, slots=True)
class ParticipationRecords:
    """Queries over participations, and the named transaction that settles one; every change is journalled with it."""

    store: Store
    clock: Clock

    def in_phase(self, run: str, round: int, phase: Phase) -> list[Participation]:
        """Who was asked in a phase of a round and what became of it, by site name."""
        rows = self.store.query(
            "SELECT * FROM participations WHERE run = ? AND round = ? AND phase = ? ORDER BY site", run, round, phase
        )
        return [participation_from(row) for row in rows]

    def find(self, work: Work, site: str) -> Participation | None:
        """One site's part in a piece of work, or None if it was never asked."""
        rows = self.store.query(
            "SELECT * FROM participations WHERE run = ? AND round = ? AND phase = ? AND site = ?",
            work.run,
            work.round,
            work.phase,
            site,
        )
        return participation_from(rows[0]) if rows else None

    def took_part(self, run: str, site: str) -> bool:
        """Whether a site was ever asked for anything in a run."""
        return bool(self.store.query("SELECT 1 FROM participations WHERE run = ? AND site = ? LIMIT 1", run, site))

    def worthless(self, run: str, number: int) -> list[str]:
        """The sites that sent an update in a round whose values were refused on arrival."""
        rows = self.store.query(
            "SELECT site FROM participations WHERE run = ? AND round = ? AND phase = 'train' "
            "AND verdict = 'rejected' AND code = ? ORDER BY site",
            run,
            number,
            InvalidUpdate.__name__,
        )
        return [row["site"] for row in rows]

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
        with self.store.transaction(f"recording {site} in {work}") as db:
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
            append_event(
                db,
                self.clock.now(),
                f"work_{verdict}",
                {"run": work.run, "round": work.round, "phase": work.phase, "site": site, "code": code},
            )


def ask(db: sqlite3.Connection, work: Work, cohort: Iterable[str]) -> None:
    """Record who is asked, inside the transaction of what asks them; who was asked before stays as it is."""
    db.executemany(
        "INSERT INTO participations "
        "(run, round, phase, site, verdict, code, reason, num_examples, num_steps, metrics) "
        "VALUES (?, ?, ?, ?, 'asked', '', '', 0, 0, '{}') ON CONFLICT DO NOTHING",
        [(work.run, work.round, work.phase, site) for site in cohort],
    )


def mark_absent(db: sqlite3.Connection, work: Work, absent: Mapping[str, str]) -> None:
    """Record why each of those who were asked, and have not answered, is absent; inside the transaction of a close."""
    db.executemany(
        "UPDATE participations SET verdict = 'absent', reason = ? "
        "WHERE run = ? AND round = ? AND phase = ? AND site = ? AND verdict = 'asked'",
        [(reason, work.run, work.round, work.phase, site) for site, reason in absent.items()],
    )


def record_judgements(db: sqlite3.Connection, run: str, judgements: Mapping[str, Judgement]) -> None:
    """Record what the rule made of each update, inside the transaction that commits its round."""
    db.executemany(
        "UPDATE participations SET weight = ?, score = ? WHERE run = ? AND round = ? AND phase = 'train' AND site = ?",
        [(judged.weight, judged.score, run, judged.round, site) for site, judged in judgements.items()],
    )
    db.executemany(
        "UPDATE participations SET verdict = 'rejected', code = ?, reason = ? "
        "WHERE run = ? AND round = ? AND phase = 'train' AND site = ?",
        [(LEFT_OUT, judged.reason, run, judged.round, site) for site, judged in judgements.items() if judged.reason],
    )
