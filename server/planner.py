"""Who takes part in a round: a pure, seeded choice among the sites that could."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..plan import Cohort


@dataclass(frozen=True, slots=True)
class Selection:
    """The sites to ask; ``target`` answers close the round at once, ``quorum`` of them suffice."""

    cohort: tuple[str, ...]
    target: int
    quorum: int


def select(
    cohort: Cohort, available: Collection[str], *, seed: int, round: int, attempt: int = 1, always: str | None = None
) -> Selection | None:
    """Choose a cohort uniformly without replacement; None if too few sites are available.

    ``always`` names a site that every round needs: it is one of the cohort, or there is no round.

    The choice is a pure function of the seed, the round, the attempt and the set of available
    names, so that a rerun with the same sites chooses the same cohorts.
    """
    if len(available) < cohort.sites_needed or not available or (always is not None and always not in available):
        return None
    size = cohort.count or max(cohort.sites_needed, math.ceil(_written(cohort.fraction) * len(available)))
    asked = min(len(available), math.ceil(size * (1 + _written(cohort.over_selection))))
    draw = random.Random(f"foedus/cohort/{seed}/{round}/{attempt}")
    chosen = draw.sample(sorted(available), asked)
    if always is not None and always not in chosen:
        chosen[0] = always
    return Selection(tuple(sorted(chosen)), size, cohort.quorum or size)


def weighted_mean(metrics: Iterable[tuple[int, Mapping[str, float]]], max_examples: int) -> dict[str, float]:
    """Means over all examples of all sites; a metric counts only where it was reported.

    Args:
        metrics: (number of examples, metrics) of each site.
        max_examples: what one site's number of examples may weigh at most, as for its update.
    """
    reported: dict[str, list[tuple[int, float]]] = {}
    for num_examples, values in metrics:
        for name, value in values.items():
            reported.setdefault(name, []).append((min(num_examples, max_examples), value))
    return {name: _mean(pairs) for name, pairs in sorted(reported.items()) if any(weight for weight, _ in pairs)}


def middle(metrics: Iterable[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Medians over the sites that measured anything: within what honest sites say while they are the most.

    Args:
        metrics: (number of examples, metrics) of each site.
    """
    reported: dict[str, list[float]] = {}
    for num_examples, values in metrics:
        for name, value in values.items() if num_examples else ():
            reported.setdefault(name, []).append(value)
    return {name: _median(sorted(values)) for name, values in sorted(reported.items())}


def _median(ascending: list[float]) -> float:
    low, high = ascending[(len(ascending) - 1) // 2], ascending[len(ascending) // 2]
    return low if low == high else low / 2 + high / 2  # their sum might overflow


def _mean(pairs: list[tuple[int, float]]) -> float:
    total = sum(weight for weight, _ in pairs)
    counted = [value for weight, value in pairs if weight]
    mean = sum(weight / total * value for weight, value in pairs)
    # A mean lies between its values; rounding must not push it out, where it might even overflow.
    return min(max(mean, min(counted)), max(counted))


def _written(number: float) -> Fraction:
    # As it stands in the plan: 0.07 of 100 sites are 7, where 0.07 * 100 in floating point is above 7.
    return Fraction(str(number))
