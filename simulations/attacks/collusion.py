"""Attackers that know the honest updates and the rule, and agree (Fang et al. 2020).

Shape suffixes: H honest updates, D parameters.
"""

from __future__ import annotations

import math

import numpy as np

from ...errors import ConfigError
from .knowledge import Knowledge, Reals

# Below this step the attack has failed, as in the paper.
SMALLEST_STEP = 1e-5


def collusion(known: Knowledge) -> Reals:
    """-λ sign μ from all A attackers, with the largest λ, found by halving, that Krum selects.

    Equal rows are no distance apart, so that A - 1 of a row's n - A - 2 nearest cost nothing. The
    first λ is the paper's bound: at most
    min_i Σ_j ‖x_i - x_j‖ / ((n - 2A - 1) √D) over i's n - A - 2 nearest, plus max_i ‖x_i‖ / √D. Where
    Krum selects none of them, the last λ, of at most 1e-5, is sent. Aims at Krum and, without the
    certainty, at Multi-Krum and Bulyan.

    Raises:
        ConfigError: the updates are fewer than the 2A + 3 that Krum asks for, or not n - A honest ones are known.
    """
    n, f = known.n, known.num_attackers
    if n < 2 * f + 3 or len(known.honest_HD) != n - f:
        raise ConfigError(
            f"{f} colluding attackers among {n} updates know {len(known.honest_HD)} honest ones, "
            f"expected all of them and n of {2 * f + 3} or more"
        )
    direction_D = np.sign(known.mean)
    squared_HH = np.array([((known.honest_HD - row_D) ** 2).sum(axis=1) for row_D in known.honest_HD])
    norms_H = np.linalg.norm(known.honest_HD, axis=1)
    nearest_HH = np.sqrt(np.sort(squared_HH, axis=1)[:, 1 : n - f - 1])
    root = math.sqrt(len(direction_D))
    step = float(nearest_HH.sum(axis=1).min() / ((n - 2 * f - 1) * root) + norms_H.max() / root)
    while step > SMALLEST_STEP and not _selected(known, -step * direction_D, squared_HH):
        step /= 2
    return -step * direction_D


def _selected(known: Knowledge, row_D: Reals, squared_HH: Reals) -> bool:
    """Whether Krum prefers A copies of ``row_D`` to every honest update."""
    f, closest = known.num_attackers, known.n - known.num_attackers - 2
    to_row_H = ((known.honest_HD - row_D) ** 2).sum(axis=1)
    own = np.sort(np.concatenate([np.zeros(f - 1), to_row_H]))[:closest].sum()
    # A row's distance to itself is the 0 that sorting puts first.
    others_HN = np.sort(np.concatenate([squared_HH, np.repeat(to_row_H[:, None], f, axis=1)], axis=1), axis=1)
    return bool(own < others_HN[:, 1 : closest + 1].sum(axis=1).min())
