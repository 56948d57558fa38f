"""What a rule makes of a round's updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One update made of N.

    Attributes:
        update_D: float32, the combined update; the updates' own dtype if they were integers.
        weights_N: float64, what each update weighed; None for a rule that has no such weights.
        selected: indices of the updates that took part, ascending.
        rejected: indices of those that did not.
        scores: float64, one per update, smaller is more trusted; None for a rule without scores.
        refused: why, for the index of each update that the rule was not even shown.
        cliques: groups of updates that are equal in every value, where the rule measured distances.
    """

    update_D: npt.NDArray[Any]
    weights_N: npt.NDArray[np.float64] | None
    selected: tuple[int, ...]
    rejected: tuple[int, ...]
    scores: npt.NDArray[np.float64] | None = None
    refused: Mapping[int, str] = field(default_factory=dict)
    cliques: tuple[tuple[int, ...], ...] = ()
