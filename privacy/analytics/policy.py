"""What a site demands of a query before it looks at a record."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import SiteVeto
from .query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPolicy:
    """A site's conditions for answering a query.

    Attributes:
        columns: what may be asked about; nothing, unless it is named here.
        min_noise_multiplier: least noise, in units of what one person can add; 0 allows exact answers.
        max_counters: without noise, so many counters at most. A histogram fine enough shows single people.
        max_records_per_person: so many records of one person at most.
    """

    columns: frozenset[str] = frozenset()
    min_noise_multiplier: float = 0.0
    max_counters: int = 64
    max_records_per_person: int = 1

    def require(self, query: Query) -> None:
        """Check a query.

        Raises:
            SiteVeto: with the first condition that does not hold.
        """
        column, z = query.question.column, query.noise.multiplier if query.noise else 0.0
        for holds, reason, mend in (
            (
                column in self.columns,
                f"this site does not answer about the column {column!r}",
                "ask the site to allow the column",
            ),
            (
                z >= self.min_noise_multiplier,
                f"the noise multiplier is {z:g}, this site expects at least {self.min_noise_multiplier:g}",
                "raise it under [noise]",
            ),
            (
                query.noise is not None or query.shape.num_counters <= self.max_counters,
                f"without noise there are {query.shape.num_counters} counters, this site expects at most "
                f"{self.max_counters}",
                "ask for fewer bins or a lower tree, or add [noise]",
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
