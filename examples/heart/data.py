"""The patients of one hospital as numbers, and their split into training and test patients.

Shape suffixes: N patients, F = 13 features.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError

HOSPITALS = ("cleveland", "hungary", "switzerland", "va-long-beach")
TRAINING_SHARE = 0.66

PLAIN = (
    "age",
    "male",
    "resting_bp_mmhg",
    "cholesterol_mg_dl",
    "fasting_sugar_over_120",
    "max_heart_rate",
    "exercise_angina",
    "st_depression",
)
# One column per level but the first.
ONE_HOT = (("chest_pain", 2), ("chest_pain", 3), ("chest_pain", 4), ("resting_ecg", 1), ("resting_ecg", 2))
FEATURES = (*PLAIN, *(f"{name}_{level}" for name, level in ONE_HOT))
NUM_FEATURES = len(FEATURES)


@dataclass(frozen=True, slots=True, eq=False)
class Patients:
    """Records of some patients.

    Attributes:
        features_NF: float32, as measured, not scaled.
        disease_N: float32, 1 with heart disease, else 0.
    """

    features_NF: npt.NDArray[np.float32]
    disease_N: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.disease_N)

    def of(self, rows: npt.NDArray[np.int64]) -> Patients:
        """The patients in these rows."""
        return Patients(self.features_NF[rows], self.disease_N[rows])


def patients_of(hospital: str) -> Patients:
    """All patients of one hospital.

    Raises:
        ConfigError: there is no such hospital.
    """
    if hospital not in HOSPITALS:
        raise ConfigError(f"there is no hospital {hospital!r}", hint=f"choose one of {', '.join(HOSPITALS)}")
    text = resources.files(__package__).joinpath("heart_disease.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["hospital"] == hospital]
    features = [
        [float(row[name]) for name in PLAIN] + [float(int(row[name]) == level) for name, level in ONE_HOT]
        for row in rows
    ]
    return Patients(np.array(features, np.float32), np.array([row["disease"] for row in rows], np.float32))


def training_and_test(hospital: str, seed: int) -> tuple[Patients, Patients]:
    """Training patients (66 %) and test patients of a hospital, each with its share of the diseased.

    The same hospital and seed give the same split.
    """
    patients = patients_of(hospital)
    draw = np.random.default_rng([seed, HOSPITALS.index(hospital)])
    training, test = [], []
    for label in (0.0, 1.0):
        rows = draw.permutation(np.flatnonzero(patients.disease_N == label))
        cut = round(TRAINING_SHARE * len(rows))
        training.append(rows[:cut])
        test.append(rows[cut:])
    return patients.of(np.concatenate(training)), patients.of(np.concatenate(test))


def together(groups: Sequence[Patients]) -> Patients:
    """The patients of several groups as one."""
    return Patients(
        np.concatenate([group.features_NF for group in groups]), np.concatenate([group.disease_N for group in groups])
    )
