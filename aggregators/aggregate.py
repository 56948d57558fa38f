"""What a rule makes of a round's updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One update made of N.

    Attributes:
        update_D: float32, the combined update.
        weights_N: float64, what each update weighed; None for a rule that has no such weights.
        selected: indices of the updates that took part, ascending.
        rejected: indices of those that did not.
        scores: float64, one per update, smaller is more trusted; None for a rule without scores.
    """

    update_D: npt.NDArray[np.float32]
    weights_N: npt.NDArray[np.float64] | None
    selected: tuple[int, ...]
    rejected: tuple[int, ...]
    scores: npt.NDArray[np.float64] | None = None
