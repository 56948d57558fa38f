"""Lies about how much an update rests on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CLAIMED_EXAMPLES = 10**12


def weight_inflation(
    num_examples_N: npt.ArrayLike, attackers: Sequence[int], claimed: int = CLAIMED_EXAMPLES
) -> npt.NDArray[np.int64]:
    """The numbers of examples, with ``claimed`` at the attackers' indices.

    Aims at every average by example: whoever claims 10¹² owns the result. Bounded by the plan's
    ``max_examples``, and without effect on rules that weigh all updates alike.
    """
    counts_N = np.array(num_examples_N, np.int64)
    counts_N[list(attackers)] = claimed
    return counts_N
