"""From weights, or from a choice of updates, to a decision.

Shape suffixes: N updates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .decision import Decision, WeightedSum


def weighed(weights_N: npt.NDArray[np.float64], scores_N: npt.NDArray[np.float64]) -> Decision:
    """The weighted sum; the updates that weigh more than nothing take part.

    ``weights_N`` may go on to the reference rows; ``scores_N`` has one entry per update.
    """
    weighing = np.flatnonzero(weights_N[: len(scores_N)] > 0)
    return Decision(WeightedSum(weights_N), tuple(weighing.tolist()), scores_N)


def mean_of(chosen: Sequence[int], scores_N: npt.NDArray[np.float64]) -> Decision:
    """The plain mean of the chosen updates."""
    weights_N = np.zeros(len(scores_N))
    weights_N[list(chosen)] = 1 / len(chosen)
    return weighed(weights_N, scores_N)
