"""Who takes part in a round: a pure, seeded choice among the sites that could."""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import dataclass

from ..plan import Cohort


@dataclass(frozen=True, slots=True)
class Selection:
    """The sites to ask; ``target`` answers close the round at once, ``quorum`` of them suffice."""

    cohort: tuple[str, ...]
    target: int
    quorum: int


def needed(cohort: Cohort) -> int:
    """How many sites must be there before a round may start."""
    return max(cohort.minimum, cohort.count or 0, cohort.quorum or 0)


def select(cohort: Cohort, available: Collection[str], *, seed: int, round: int, attempt: int = 1) -> Selection | None:
    """Choose a cohort uniformly without replacement; None if too few sites are available.

    The choice is a pure function of the seed, the round, the attempt and the set of available
    names, so that a rerun with the same sites chooses the same cohorts.
    """
    if len(available) < needed(cohort) or not available:
        return None
    size = cohort.count or max(needed(cohort), math.ceil(cohort.fraction * len(available)))
    asked = min(len(available), math.ceil(size * (1 + cohort.over_selection)))
    draw = random.Random(f"foedus/cohort/{seed}/{round}/{attempt}")
    chosen = draw.sample(sorted(available), asked)
    return Selection(tuple(sorted(chosen)), size, cohort.quorum or size)


def weighted_mean(metrics: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """Means over all examples of all sites; a metric counts only where it was reported.

    Args:
        metrics: (number of examples, metrics) of each site.
    """
    sums: dict[str, float] = {}
    weights: dict[str, int] = {}
    for num_examples, values in metrics:
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + num_examples * value
            weights[name] = weights.get(name, 0) + num_examples
    return {name: sums[name] / weights[name] for name in sorted(sums) if weights[name]}
