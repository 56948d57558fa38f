"""What a site demands of a query before it looks at a record."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import SiteVeto
from .query import KINDS, Query, Question, shape_of

LEAST_NOISE = 1.0  # with less, what is asked of exact answers would be got around


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPolicy:
    """A site's conditions for answering a query.

    Attributes:
        columns: what may be asked about; nothing, unless it is named here; None is every column.
        kinds: which kinds of question are answered.
        min_sites: fewest sites in an answer.
        min_noise_multiplier: least noise, in units of what one person can add; 0 allows exact answers.
        max_counters: without noise, so many counters of a question at most. A histogram fine enough shows single
            people.
        max_records_per_person: so many records of one person at most.
    """

    columns: frozenset[str] | None = frozenset()
    kinds: frozenset[str] = frozenset(KINDS)
    min_sites: int = 5
    min_noise_multiplier: float = 0.0
    max_counters: int = 64
    max_records_per_person: int = 1

    def require(self, query: Query) -> None:
        """Check a query.

        Raises:
            SiteVeto: with the first condition that does not hold.
        """
        z = query.noise.multiplier if query.noise else 0.0
        for holds, reason, mend in (
            *(condition for question in query.questions for condition in self._of_question(question, z > 0)),
            (
                query.min_sites >= self.min_sites,
                f"an answer from {query.min_sites} sites would do, this site expects at least {self.min_sites}",
                "raise min_sites",
            ),
            (
                z >= self.min_noise_multiplier,
                f"the noise multiplier is {z:g}, this site expects at least {self.min_noise_multiplier:g}",
                "raise it under [noise]",
            ),
            (
                query.noise is None or z >= LEAST_NOISE,
                f"the noise multiplier {z:g} hides nobody, this site expects at least {LEAST_NOISE:g}, or none",
                "raise it, or leave [noise] out and ask for an exact answer",
            ),
            (
                query.records_per_person <= self.max_records_per_person,
                f"{query.records_per_person} records of one person are counted, this site expects at most "
                f"{self.max_records_per_person}",
                "lower records_per_person",
            ),
        ):
            if not holds:
                raise SiteVeto(f"query {query.name!r}: {reason}", hint=mend)

    def _of_question(self, question: Question, noisy: bool) -> tuple[tuple[bool, str, str], ...]:
        num_counters = shape_of(question).num_counters
        return (
            (
                self.columns is None or question.column in self.columns,
                f"this site does not answer about the column {question.column!r}",
                "ask the site to allow the column",
            ),
            (
                question.kind in self.kinds,
                f"this site does not answer questions of kind {question.kind!r}",
                f"ask for one of {', '.join(sorted(self.kinds))}",
            ),
            (
                noisy or num_counters <= self.max_counters,
                f"without noise there are {num_counters} counters of {question.column!r}, this site expects at most "
                f"{self.max_counters}",
                "ask for fewer bins or a lower tree, or add [noise]",
            ),
        )
