"""What is asked, as it stands in a query's file; and the shape of the counters that answer it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from ...configuration import Settings

MAX_COUNTERS = 1 << 17  # of 64 bits: a mebibyte, which is what one message holds
MAX_QUESTIONS = 1000
MAX_ESTIMATES = 2000
MAX_STEPS = 1 << 50  # in one counter of one site: a double holds it, and 2^13 sites' sum fits 64 bits

Column = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class Shape:
    """What one record can add to the counters.

    Attributes:
        num_counters: how many there are.
        largest: the most that it adds to one of them, in magnitude.
        l1: the most that it adds to all together.
        l2: the largest L2 norm of what it adds.
    """

    num_counters: int
    largest: int
    l1: float
    l2: float


class Count(Settings):
    """How many records have a value in the column."""

    kind: Literal["count"]
    column: Column


class _Numbers(Settings):
    """A column of numbers, clipped to low..high and counted in whole steps of 1/scale."""

    column: Column
    low: float
    high: float
    scale: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> _Numbers:
        if not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        if self.scale * max(abs(self.low), abs(self.high)) > MAX_STEPS:
            raise ValueError(f"low and high are more than 2^50 steps of 1/{self.scale:g} from 0; lower the scale")
        if self.largest < 1:
            raise ValueError(f"from low to high is less than one step of 1/{self.scale:g}; raise the scale")
        return self

    @property
    def centre(self) -> int:
        """c: steps are counted from the middle of the range, so that no record adds more than it must."""
        return (self._steps(self.low) + self._steps(self.high)) // 2

    @property
    def largest(self) -> int:
        """X: the most steps that a value can be away from the middle."""
        return max(self.centre - self._steps(self.low), self._steps(self.high) - self.centre)

    def _steps(self, value: float) -> int:
        return round(self.scale * value)


class Sum(_Numbers):
    """The sum of the values."""

    kind: Literal["sum"]


class Mean(_Numbers):
    """Their mean."""

    kind: Literal["mean"]


class Variance(_Numbers):
    """Their variance: the mean square of the distance from their mean."""

    kind: Literal["variance"]


class Histogram(Settings):
    """How many values lie in each bin: from one edge to below the next; the last bin has both its edges."""

    kind: Literal["histogram"]
    column: Column
    edges: tuple[float, ...] = Field(min_length=2, max_length=MAX_COUNTERS)

    @model_validator(mode="after")
    def _ascending(self) -> Histogram:
        if any(one >= other for one, other in pairwise(self.edges)):
            raise ValueError("the edges do not ascend")
        return self


class Top(Settings):
    """The most frequent of the categories named; what a record has beside them counts as other."""

    kind: Literal["top"]
    column: Column
    categories: tuple[str, ...] = Field(min_length=1, max_length=MAX_COUNTERS)
    k: int = Field(default=10, ge=1)

    @model_validator(mode="after")
    def _different(self) -> Top:
        if len(set(self.categories)) != len(self.categories):
            raise ValueError("a category is named twice")
        return self


class Quantile(Settings):
    """Values below which the given shares of the records lie, from counts in a tree of halved intervals."""

    kind: Literal["quantile"]
    column: Column
    low: float
    high: float
    at: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(default=(0.5,), min_length=1, max_length=100)
    height: int = Field(default=10, ge=1, le=16)

    @model_validator(mode="after")
    def _in_order(self) -> Quantile:
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        return self


Kind = Literal["count", "sum", "mean", "variance", "histogram", "top", "quantile"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Question = Annotated[
    Count | Sum | Mean | Variance | Histogram | Top | Quantile,
    Field(discriminator="kind"),
]


class Noise(Settings):
    """Noise in the sum, which makes the answer differentially private.

    Attributes:
        multiplier: the standard deviation, in units of the most that one person's records can add (L2 norm).
        kind: its distribution.
    """

    multiplier: float = Field(gt=0)
    kind: Literal["skellam", "discrete-gaussian"] = "skellam"


@dataclass(frozen=True, slots=True)
class Part:
    """One question of a query, and which of the query's counters are its own.

    Attributes:
        question: what is asked.
        start, stop: its counters, from where to before where.
        stretch: by how much they are multiplied. With noise, which is the same on every counter, a record must be
            able to add about as much to the counters of each question, or the noise would drown the smaller ones.
    """

    question: Question
    start: int
    stop: int
    stretch: int


class Query(Settings):
    """Questions that are answered together, from one sum, and the conditions under which they are asked.

    A file may say ``[question]`` where there is only one.

    Attributes:
        name: for people and logs.
        questions: what is asked.
        min_sites: fewest sites in the answer.
        colluders: so many of the sites may be the server's; None is a fifth of those asked.
        deadline_seconds: a site that does not answer a message for so long is left out.
        withhold_below: what rests on fewer records is not shown. It is the reader that this hides them from: the
            server has seen the sum.
        records_per_person: so many records of one person are counted for each question, the first ones at each site.
        max_records_per_site: a site with more does not answer.
        noise: none, unless this is here.
    """

    name: str = Field(min_length=1, max_length=100)
    questions: tuple[Question, ...] = Field(min_length=1, max_length=MAX_QUESTIONS)
    min_sites: int = Field(default=5, ge=3)
    colluders: int | None = Field(default=None, ge=0)
    deadline_seconds: float = Field(default=60.0, gt=0, le=86_400)
    withhold_below: int = Field(default=5, ge=0)
    records_per_person: int = Field(default=1, ge=1, le=1000)
    max_records_per_site: int = Field(default=1_000_000, ge=1)
    noise: Noise | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_question(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "question" not in values:
            return values
        if "questions" in values:
            raise ValueError("give question or questions, not both")
        return {name: value for name, value in values.items() if name != "question"} | {
            "questions": (values["question"],)
        }

    @model_validator(mode="after")
    def _fits(self) -> Query:
        if (num := self.shape.num_counters) > MAX_COUNTERS:
            raise ValueError(
                f"the answer is {num} counters, at most {MAX_COUNTERS} are summed at once; ask for fewer bins, a lower "
                "tree, or in several queries"
            )
        if (num := sum(map(_num_estimates, self.questions))) > MAX_ESTIMATES:
            raise ValueError(f"the answer has {num} numbers, at most {MAX_ESTIMATES} are given; ask for fewer bins")
        if self.most_per_site > MAX_STEPS:
            most = MAX_STEPS // self.shape.largest
            raise ValueError(
                f"{self.max_records_per_site} records of up to {self.shape.largest} steps each are more than 2^50 in a "
                f"counter; lower the scale, or max_records_per_site to {most}"
            )
        return self

    @property
    def parts(self) -> tuple[Part, ...]:
        """The questions with their counters, in order."""
        shapes = [shape_of(question) for question in self.questions]
        largest, stop, parts = max(shape.largest for shape in shapes), 0, []
        for question, shape in zip(self.questions, shapes, strict=True):
            start, stop = stop, stop + shape.num_counters
            parts.append(Part(question, start, stop, largest // shape.largest if self.noise else 1))
        return tuple(parts)

    @property
    def shape(self) -> Shape:
        """What one record can add, if it answers every question."""
        parts = [(shape_of(part.question), part.stretch) for part in self.parts]
        return Shape(
            num_counters=sum(shape.num_counters for shape, _ in parts),
            largest=max(shape.largest * stretch for shape, stretch in parts),
            l1=sum(shape.l1 * stretch for shape, stretch in parts),
            l2=math.hypot(*(shape.l2 * stretch for shape, stretch in parts)),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are asked about, each once."""
        return tuple(dict.fromkeys(question.column for question in self.questions))

    @property
    def most_per_site(self) -> int:
        """The largest magnitude of a counter of one site."""
        return self.shape.largest * self.max_records_per_site

    @property
    def l1_sensitivity(self) -> float:
        """Δ₁: the most that one person's records at a site add to the sum."""
        return self.records_per_person * self.shape.l1

    @property
    def l2_sensitivity(self) -> float:
        """Δ₂: its largest L2 norm."""
        return self.records_per_person * self.shape.l2

    @property
    def digest(self) -> bytes:
        """SHA-256("fl-sa/v1/query" ‖ the query as JSON with every default): two queries alike have the same."""
        return hashlib.sha256(b"fl-sa/v1/query" + self.model_dump_json().encode()).digest()


def shape_of(question: Question) -> Shape:
    """What one record can add to a question's counters."""
    match question:
        case Count():
            return Shape(1, 1, 1.0, 1.0)
        case Variance():
            return _alike(3, question.largest**2)
        case Sum() | Mean():
            return _alike(2, question.largest)
        case Histogram():
            return Shape(len(question.edges), 1, 1.0, 1.0)
        case Top():
            return Shape(len(question.categories) + 1, 1, 1.0, 1.0)
        case Quantile():
            levels = question.height + 1
            return Shape(2**levels - 1, 1, float(levels), math.sqrt(levels))


def _num_estimates(question: Question) -> int:
    match question:
        case Histogram():
            return len(question.edges)
        case Top():
            return min(question.k, len(question.categories))
        case Quantile():
            return len(question.at)
        case _:
            return 1


def _alike(num_counters: int, largest: int) -> Shape:
    """Counters of which a record can add as much to each, so that the same noise is right for all."""
    return Shape(num_counters, largest, float(num_counters * largest), math.sqrt(num_counters) * largest)
