"""A run's scores as a picture: a row for each site, a cell for each round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .history import LEFT_OUT

FULL_SHADE = 100.0  # times the round's median score
FAINTEST = 0.08  # a cell that is there can be seen


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of one update. ``shade`` is in [0, 1]; ``place`` is that of its round among the run's."""

    place: int
    shade: float
    left_out: bool
    told: str


@dataclass(frozen=True, slots=True)
class Row:
    """One site: how often it was left out, its median score (None without scores), and its cells."""

    site: str
    num_left_out: int
    median_score: float | None
    cells: tuple[Cell, ...]


def score_map(rounds: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows by site name, from the rounds of ``foedus run show --json``.

    There are none where the rule gave no scores and left nobody out.
    """
    cells: dict[str, list[Cell]] = {}
    scores: dict[str, list[float]] = {}
    for place, round in enumerate(rounds):
        judged = [p for p in round["participations"] if p["phase"] == "train" and _judged(p)]
        all_scores = [p["score"] for p in judged if p["score"] is not None]
        for part in judged:
            score, left_out = part["score"], part["verdict"] == "rejected"
            told = f"round {round['number']}: " + ("left out" if left_out else "counted")
            if score is not None:
                told += f", score {score:.3g}"
                scores.setdefault(part["site"], []).append(score)
            cells.setdefault(part["site"], []).append(Cell(place, _shade(score, all_scores), left_out, told))
    if not scores and not any(cell.left_out for row in cells.values() for cell in row):
        return []
    return [
        Row(
            site=site,
            num_left_out=sum(cell.left_out for cell in row),
            median_score=statistics.median(scores[site]) if site in scores else None,
            cells=tuple(row),
        )
        for site, row in sorted(cells.items())
    ]


def _judged(part: Mapping[str, Any]) -> bool:
    return part["verdict"] == "accepted" or part["score"] is not None or part["code"] == LEFT_OUT


def _shade(score: float | None, all_scores: Sequence[float]) -> float:
    """Logarithmic from the round's median score to ``FULL_SHADE`` times that; linear where the median is 0."""
    if score is None:
        return FAINTEST
    median, most = statistics.median(all_scores), max(all_scores)
    if median > 0:
        share = math.log(max(score, median) / median) / math.log(FULL_SHADE)
    else:
        share = score / most if most > 0 else 0.0
    return min(1.0, max(FAINTEST, share))
