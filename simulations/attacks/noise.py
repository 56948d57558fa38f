"""Noise instead of an update."""

from __future__ import annotations

import numpy as np

from ...errors import ConfigError
from .knowledge import Knowledge, Reals


def gaussian(known: Knowledge, *, sigma: float = 200.0) -> Reals:
    """N(0, σ²) per parameter, drawn for each attacker (Blanchard et al. 2017, with σ = 200).

    Aims at the mean; every rule that bounds an outlier withstands it.

    Raises:
        ConfigError: σ is negative.
    """
    if not sigma >= 0:
        raise ConfigError(f"sigma is {sigma}, expected 0 or more")
    draw = np.random.default_rng(known.seed)
    return sigma * draw.standard_normal((known.num_attackers, known.honest_HD.shape[1]))
