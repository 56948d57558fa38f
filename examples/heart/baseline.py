"""What the federation's model is compared with: all patients in one place, and each hospital alone.

Both use the federation's own trainer, plan and number of passes over the patients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch

from ... import configuration
from ...client_sdk.task import TrainingJob, job_seed
from ...client_sdk.torch_module import load_model
from ...modelfile import Model
from ...plan import LocalTraining, Plan
from .data import HOSPITALS, Patients, together, training_and_test
from .model import HeartModel
from .scaling import scaling_of
from .scores import accuracy, auc
from .task import heart_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One model measured on the test patients of every hospital.

    Attributes:
        accuracy: on all hospitals' test patients together.
        auc: on all of them ranked together.
        hospital_accuracy: on each hospital's own test patients.
        hospital_auc: the same; NaN where all test patients are ill, or none.
        num_patients: how many test patients there are.
    """

    accuracy: float
    auc: float
    hospital_accuracy: Mapping[str, float]
    hospital_auc: Mapping[str, float]
    num_patients: int


def heart_plan() -> Plan:
    """The plan of this example, without its initial model."""
    with resources.as_file(resources.files(__package__).joinpath("plan.toml")) as path:
        return configuration.load(Plan, path)


def centralised(split: int, plan: Plan | None = None) -> Model:
    """A model trained on the training patients of all hospitals in one place."""
    groups = [training_and_test(hospital, split)[0] for hospital in HOSPITALS]
    return _trained(together(groups), "centralised", split, plan or heart_plan())


def alone(hospital: str, split: int, plan: Plan | None = None) -> Model:
    """A model trained on one hospital's training patients only, scaled by their statistics alone."""
    return _trained(training_and_test(hospital, split)[0], hospital, split, plan or heart_plan())


def quality(model: Model, split: int) -> Quality:
    """Measure a model of the heart task, from whichever source, on every hospital's test patients.

    Raises:
        LayoutMismatch: it is not a model of the heart task.
    """
    tests = {hospital: training_and_test(hospital, split)[1] for hospital in HOSPITALS}
    everyone = together(list(tests.values()))
    model.layout.require(heart_task(everyone, everyone).layout(), "the heart task")
    module = HeartModel()
    load_model(module, model)
    module.eval()
    with torch.no_grad():
        logits = {name: module(torch.from_numpy(test.features_NF)).numpy() for name, test in tests.items()}
    logits_N = np.concatenate(list(logits.values()))
    return Quality(
        accuracy=accuracy(logits_N, everyone.disease_N),
        auc=auc(logits_N, everyone.disease_N),
        hospital_accuracy={name: accuracy(logits[name], tests[name].disease_N) for name in HOSPITALS},
        hospital_auc={name: auc(logits[name], tests[name].disease_N) for name in HOSPITALS},
        num_patients=len(everyone),
    )


def _trained(patients: Patients, name: str, split: int, plan: Plan) -> Model:
    task = heart_task(patients, patients, scaling_of(patients))
    job = TrainingJob(
        run="baseline", round=1, site=name, training=_whole_run(plan), seed=job_seed(plan.seed + split, 1, name)
    )
    return task.train(task.initial(plan.seed), job).model


def _whole_run(plan: Plan) -> LocalTraining:
    """All rounds' local training in one go."""
    training = plan.training
    length = {
        "epochs": training.epochs and training.epochs * plan.rounds,
        "steps": training.steps and training.steps * plan.rounds,
    }
    return training.model_copy(update=length)
