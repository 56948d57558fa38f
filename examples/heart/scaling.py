"""How the features are scaled: by their means and deviations over all training patients.

Shape suffixes: F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ... import configuration
from ...errors import RoundFailed
from ...privacy.analytics.answer import Answers
from ...privacy.analytics.query import Query
from .data import FEATURES, NUM_FEATURES, Patients

SMALLEST_DEVIATION = 1e-3  # a feature that is the same for all


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """What is taken away from each feature, and what it is divided by.

    Attributes:
        mean_F: float32.
        deviation_F: float32, positive.
    """

    mean_F: npt.NDArray[np.float32]
    deviation_F: npt.NDArray[np.float32]

    @staticmethod
    def of(mean_F: npt.ArrayLike, variance_F: npt.ArrayLike) -> Scaling:
        """From means and variances."""
        deviation_F = np.maximum(np.sqrt(np.asarray(variance_F, np.float64)), SMALLEST_DEVIATION)
        return Scaling(np.asarray(mean_F, np.float32), deviation_F.astype(np.float32))


# What each feature is clipped to for the question, and its steps per unit.
RANGES = {
    "age": (0, 120, 1),
    "resting_bp_mmhg": (0, 300, 1),
    "cholesterol_mg_dl": (0, 700, 1),
    "max_heart_rate": (0, 250, 1),
    "st_depression": (-10, 10, 10),
}
YES_OR_NO = (0, 1, 1)


def scaling_query(min_sites: int) -> Query:
    """Mean and variance of every feature, in one secure sum: the server learns these numbers and no hospital's."""
    questions = [
        {"kind": kind, "column": feature, "low": low, "high": high, "scale": scale}
        for feature in FEATURES
        for low, high, scale in [RANGES.get(feature, YES_OR_NO)]
        for kind in ("mean", "variance")
    ]
    return configuration.validate(
        Query,
        {"name": "scaling", "questions": questions, "min_sites": min_sites, "max_records_per_site": 10_000},
        "the question",
    )


def scaling_from(answers: Answers) -> Scaling:
    """What the answers to ``scaling_query`` say.

    Raises:
        RoundFailed: a number was withheld, since it rests on too few patients.
    """
    values = [answer.estimates[0].value for answer in answers.answers]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        raise RoundFailed("there are too few patients to tell how their features are scaled")
    return Scaling.of(known[0::2], known[1::2])


UNSCALED = Scaling(np.zeros(NUM_FEATURES, np.float32), np.ones(NUM_FEATURES, np.float32))


def scaling_of(patients: Patients) -> Scaling:
    """That of some patients whose features are at hand."""
    features_NF = patients.features_NF.astype(np.float64)
    return Scaling.of(features_NF.mean(0), features_NF.var(0))
