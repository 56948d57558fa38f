"""An answer: estimates with the interval that each is good for."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

TWO_SIDED_95_PERCENT = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number of an answer.

    Attributes:
        label: what it is of.
        value: the number; None where it is withheld, as are the ends then.
        low, high: the true answer about the clipped values lies between, for certain where there was no noise, and
            with about 95 % where there was.
    """

    label: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question has come to.

    Attributes:
        kind, column: the question.
        estimates: one, or one for each bin, category or share.
        num_records: how many records it rests on; None where that is withheld.
    """

    kind: str
    column: str
    estimates: tuple[Estimate, ...]
    num_records: float | None


@dataclass(frozen=True, slots=True)
class Answers:
    """What a query has come to.

    Attributes:
        answers: to its questions, in order.
        num_sites: of how many sites.
        epsilon, delta: what the answers together are to each person; None without noise, when no ε holds.
    """

    answers: tuple[Answer, ...]
    num_sites: int
    epsilon: float | None = None
    delta: float | None = None

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Answers:
        """What ``to_json`` wrote."""
        found = json.loads(text)
        answers = (
            Answer(**(answer | {"estimates": tuple(Estimate(**one) for one in answer["estimates"])}))
            for answer in found["answers"]
        )
        return Answers(**(found | {"answers": tuple(answers)}))


def estimate(
    label: str,
    value: float,
    *,
    error: float = 0.0,
    deviation: float = 0.0,
    least: float = -math.inf,
    most: float = math.inf,
) -> Estimate:
    """A value that may be ``error`` off, and has noise of the given standard deviation; kept within least and most."""
    reach = error + TWO_SIDED_95_PERCENT * deviation
    low, middle, high = (min(max(number, least), most) for number in (value - reach, value, value + reach))
    return Estimate(label, middle, low, high)


def too_few(num_records: float, withhold_below: int) -> bool:
    """Whether there are records, but fewer than may be shown. That there are none is no secret of anybody."""
    return 0 < num_records < withhold_below


def withheld(label: str) -> Estimate:
    """A number that rests on too few records to be shown."""
    return Estimate(label, None, None, None)
