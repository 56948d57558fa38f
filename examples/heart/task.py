"""What a hospital trains. In a site's configuration::

[tasks.heart]
entry = "foedus.examples.heart.task:task_for"
parameters = { hospital = "cleveland" }
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import TensorDataset

from ...client_sdk.torch_task import TorchTask
from ...modelfile import Model
from .data import NUM_FEATURES, Patients, training_and_test
from .model import HeartModel
from .scaling import UNSCALED, Scaling
from .scores import accuracy, auc


def task_for(*, hospital: str, split: int = 0) -> TorchTask:
    """The heart task at one hospital, with the training and test patients of one split.

    Raises:
        ConfigError: there is no such hospital.
    """
    return heart_task(*training_and_test(hospital, split))


def heart_task(training: Patients, test: Patients, scaling: Scaling = UNSCALED) -> TorchTask:
    """The heart task on any patients; its initial model carries the scaling."""
    return TorchTask(
        name="heart",
        model=lambda: HeartModel(scaling),
        loss=loss,
        train_data=lambda: dataset(training),
        test_data=lambda: dataset(test),
        metrics=metrics,
    )


def initial_model(scaling: Scaling, seed: int) -> Model:
    """What the run starts from."""
    nobody = Patients(np.zeros((0, NUM_FEATURES), np.float32), np.zeros(0, np.float32))
    return heart_task(nobody, nobody, scaling).initial(seed)


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Mean binary cross-entropy of a batch of (features, disease)."""
    features_BF, disease_B = batch
    return binary_cross_entropy_with_logits(model(features_BF), disease_B)


def metrics(model: nn.Module, batches: Iterable[Any]) -> Mapping[str, float]:
    """Accuracy and AUC on all of a hospital's test patients.

    The federation's figure is the mean over the hospitals, weighted by test patients. For the AUC
    that is the mean of the hospitals' own AUCs, not the AUC of all patients ranked together, and a
    hospital whose test patients are all diseased (Switzerland, as a rule) has none and reports none.
    """
    results = [(model(features_BF), disease_B) for features_BF, disease_B in batches]
    logits_N = torch.cat([logits_B for logits_B, _ in results]).numpy()
    disease_N = torch.cat([disease_B for _, disease_B in results]).numpy()
    area = auc(logits_N, disease_N)
    return {"accuracy": accuracy(logits_N, disease_N)} | ({} if math.isnan(area) else {"auc": area})


def dataset(patients: Patients) -> TensorDataset:
    """The patients as (features, disease) tensors."""
    return TensorDataset(torch.from_numpy(patients.features_NF), torch.from_numpy(patients.disease_N))
