"""Logistic regression on features that are scaled by what the model carries.

A hospital's own means would make the same blood pressure mean different things at different hospitals. So the model
holds the mean and the deviation of every feature over the training patients of all hospitals together. They are part
of the initial model and are not trained; the hospitals find them out in a secure sum before the run (``scaling``).

Shape suffixes: B batch, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .data import NUM_FEATURES
from .scaling import UNSCALED, Scaling


class HeartModel(nn.Module):
    """The logit of heart disease, shape (B,), from features as measured, shape (B, F)."""

    def __init__(self, scaling: Scaling = UNSCALED) -> None:
        super().__init__()
        self.mean_F = nn.Parameter(torch.from_numpy(scaling.mean_F.copy()), requires_grad=False)
        self.deviation_F = nn.Parameter(torch.from_numpy(scaling.deviation_F.copy()), requires_grad=False)
        self.linear = nn.Linear(NUM_FEATURES, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x_BF: Tensor) -> Tensor:
        logits_B: Tensor = self.linear((x_BF - self.mean_F) / self.deviation_F).squeeze(1)
        return logits_B
