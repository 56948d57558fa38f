"""``[analytics]`` in ``policy.toml``: which questions about its records a site answers. By default none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from ..configuration import Settings
from ..errors import BudgetExhausted, SiteVeto
from ..privacy.analytics.policy import QueryPolicy
from ..privacy.analytics.query import KINDS, Column, Kind, Query
from ..privacy.analytics.sessions import DELTA
from ..privacy.events import Event
from ..privacy.renyi import epsilon


class QuerySettings(Settings):
    """What a site demands of a query; what it demands of a secure sum holds beside it.

    Attributes:
        columns: what may be asked about, or "any".
        kinds: which kinds of question are answered.
        min_sites: fewest sites in an answer.
        min_records: with fewer records for a question this site does not answer.
        min_noise_multiplier: least noise, in units of what one person can add; 0 allows exact answers.
        max_epsilon: how much all answers together may cost a person in this site's records, at δ = 10⁻⁶; None is no
            limit. An exact answer costs more than any.
        max_counters: without noise, so many counters of a question at most.
        max_records_per_person: so many records of one person at most.
    """

    columns: tuple[Column, ...] | Literal["any"] = ()
    kinds: tuple[Kind, ...] = KINDS
    min_sites: PositiveInt = 5
    min_records: NonNegativeInt = 5
    min_noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    max_epsilon: Annotated[float, Field(gt=0)] | None = None
    max_counters: PositiveInt = 64
    max_records_per_person: PositiveInt = 1

    def require(self, query: Query) -> None:
        """Check a query, before a record is looked at.

        Raises:
            SiteVeto: with the first condition that does not hold.
        """
        QueryPolicy(
            columns=None if self.columns == "any" else frozenset(self.columns),
            kinds=frozenset(self.kinds),
            min_sites=self.min_sites,
            min_noise_multiplier=self.min_noise_multiplier,
            max_counters=self.max_counters,
            max_records_per_person=self.max_records_per_person,
        ).require(query)

    def require_budget(self, query: Query, spent: Iterable[Event]) -> None:
        """Check what answering would have cost together with all that was answered before.

        Raises:
            BudgetExhausted: it is too much.
        """
        if self.max_epsilon is not None and (total := epsilon(spent, DELTA)) > self.max_epsilon:
            raise BudgetExhausted(
                f"query {query.name!r}: all answers together would be ε = {total:.4g} at δ = {DELTA:g}, this site "
                f"allows {self.max_epsilon:g}"
            )

    def require_records(self, query: Query, num_records: tuple[float, ...]) -> None:
        """Check that there are enough records for each question. How many there are, the refusal does not say.

        Raises:
            SiteVeto: there are too few.
        """
        for question, number in zip(query.questions, num_records, strict=True):
            if number < self.min_records:
                raise SiteVeto(
                    f"query {query.name!r}: this site has fewer records with a value in {question.column!r} than its "
                    f"min_records {self.min_records}"
                )
