"""What a hospital may be asked about: the features of its training patients. In a site's configuration::

[records]
entry = "foedus.examples.heart.records:records_for"
parameters = { hospital = "cleveland" }
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .data import FEATURES
from .logistic import part_of


def records_for(*, hospital: str, split: int = 0, part: int | None = None) -> dict[str, npt.NDArray[np.float32]]:
    """The features by name, of all training patients of a hospital or of one part of them.

    Raises:
        ConfigError: there is no such hospital, or no such part.
    """
    training, _ = part_of(hospital, part, split)
    return dict(zip(FEATURES, training.features_NF.T, strict=True))
