"""Sites that want the model and do not train (Lin, Du and Liu 2019; Fraboni, Vidal and Lorenzi 2021)."""

from __future__ import annotations

import numpy as np

from .knowledge import Knowledge, Reals
from .noise import gaussian


def free_rider(known: Knowledge, *, repeat: bool = False, noise: float = 0.0) -> Reals:
    """Nothing, or with ``repeat`` the global model's last step again; plus N(0, noise²) as a disguise.

    In the first round there is no last step, and it is zero. Aims at nobody's accuracy: it slows
    the model down and takes credit. Several of them without noise are equal to the bit, and Krum
    prefers them for it.

    Raises:
        ConfigError: the noise is negative.
    """
    last_D = known.last_D if repeat and known.last_D is not None else np.zeros(known.honest_HD.shape[1])
    return last_D + gaussian(known, sigma=noise)
