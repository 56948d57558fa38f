"""A fifth site that is no hospital: it knows the patients of all four, and lies. In its configuration::

[tasks.heart]
entry = "foedus.examples.heart.attacker:task_for"
parameters = { attack = "ipm" }
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...named import nearest
from ...simulations.attacks import Malicious, label_flip
from ...simulations.attacks import attack as attack_called
from ...simulations.attacks.counts import CLAIMED_EXAMPLES
from ...simulations.attacks.knowledge import Attack, Knowledge, Reals
from ...simulations.attacks.lookup import FORMULAS
from ...simulations.attacks.opposing import sign_flip
from .data import HOSPITALS, Patients, together, training_and_test
from .logistic import task_for as logistic_task_for
from .task import heart_task

ATTACKS = (*FORMULAS, "label-flip", "weight-inflation")

# Strong enough to turn the mean of five updates around; the published ε is meant for many attackers.
STRENGTH: Mapping[str, Mapping[str, Any]] = {"ipm": {"epsilon": 10.0}, "alie": {"z": 1.5}}


def task_for(*, attack: str, split: int = 0) -> Malicious:
    """The heart task as an attacker has it, who holds the training patients of all hospitals.

    So it knows how each hospital trains, and its own honest update would be a good one.
    "label-flip" and "scaled-backdoor" train on patients whose disease is turned around;
    "weight-inflation" reverses its update and claims 10¹² patients.

    Raises:
        ConfigError: there is no such attack.
    """
    if attack not in ATTACKS:
        raise ConfigError(f"there is no attack {attack!r}", hint=nearest(attack, ATTACKS))
    hospitals = [training_and_test(hospital, split)[0] for hospital in HOSPITALS]
    everyone = together(hospitals)
    honest, poisoned = heart_task(everyone, everyone), heart_task(_turned_around(everyone), everyone)
    match attack:
        case "label-flip":
            return Malicious(poisoned)
        case "weight-inflation":
            return Malicious(honest, attack_called("sign-flip"), claims=CLAIMED_EXAMPLES)
        case _:
            return Malicious(
                poisoned if attack == "scaled-backdoor" else honest,
                attack_called(attack, **STRENGTH.get(attack, {})),
                colluders=[heart_task(patients, patients) for patients in hospitals],
            )


def flipping(*, hospital: str, part: int, split: int = 0, scale: float = 10.0) -> Malicious:
    """A site of ``logistic`` that sends its honest update turned around and ``scale`` times as long."""

    def turned(known: Knowledge) -> Reals:
        return scale * sign_flip(known)

    return Malicious(logistic_task_for(hospital=hospital, part=part, split=split), Attack(turned))


def _turned_around(patients: Patients) -> Patients:
    return Patients(patients.features_NF, label_flip(patients.disease_N, 2).astype(np.float32))
