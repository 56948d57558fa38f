"""What a rule decides, before a single value is combined.

Shape suffixes: N updates, M mixed rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class WeightedSum:
    """Σ w_i x_i over the updates, and over the reference rows behind them if there are as many weights."""

    weights_N: npt.NDArray[np.float64]

    @property
    def used(self) -> tuple[int, ...]:
        """Indices of the rows that weigh anything, ascending."""
        return tuple(np.flatnonzero(self.weights_N).tolist())


@dataclass(frozen=True, slots=True)
class Middle:
    """Per coordinate: the mean of what is left when the ``drop`` smallest and the ``drop`` largest are gone.

    With ``drop`` = (n - 1) // 2 it is the median, the mean of the two middle values if n is even.
    """

    drop: int


@dataclass(frozen=True, slots=True)
class Closest:
    """Per coordinate: the mean of the ``count`` values closest to the median; of two as close, the smaller."""

    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Coordinatewise:
    """One coordinate at a time, over some of the updates or over mixtures of them.

    Attributes:
        statistic: what is taken of each coordinate.
        taken: indices of the rows it is taken over, ascending: of the updates, or of the mixtures.
        mix_MN: float64; the mixtures are its product with the updates, made block by block and
            never as a whole. None: the updates themselves.
    """

    statistic: Middle | Closest
    taken: tuple[int, ...]
    mix_MN: npt.NDArray[np.float64] | None = None

    @property
    def used(self) -> tuple[int, ...]:
        """Indices of the updates that enter, ascending."""
        if self.mix_MN is None:
            return self.taken
        return tuple(np.flatnonzero(self.mix_MN[list(self.taken)].any(axis=0)).tolist())


Combination: TypeAlias = WeightedSum | Coordinatewise


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """How the updates are combined, and whose took part.

    Attributes:
        combination: what remains to be computed, in one pass over the updates.
        selected: indices of the updates that take part, ascending.
        scores_N: float64, one per update, smaller is more trusted; None for a rule without scores.
        refused: why the rule was not even shown an update, for the indices of those.
        cliques: groups of updates that are equal in every value, where a rule measured distances.
    """

    combination: Combination
    selected: tuple[int, ...]
    scores_N: npt.NDArray[np.float64] | None = None
    refused: Mapping[int, str] = field(default_factory=dict)
    cliques: tuple[tuple[int, ...], ...] = ()

    @property
    def weights_N(self) -> npt.NDArray[np.float64] | None:
        """What each update weighs, and each reference row behind them; None where no such weights exist."""
        return self.combination.weights_N if isinstance(self.combination, WeightedSum) else None
