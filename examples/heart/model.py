"""Logistic regression that learns, with its weights, how to scale every feature.

A hospital's own means would make the same blood pressure mean different things at different
hospitals. So the model carries the means of the features and of their squares as buffers: in the
first round each hospital scales by its own and sends them along, the server averages them by
number of patients, and from then on every hospital scales by the exact statistics of all
training patients together, which nobody but the server's average has seen.

Shape suffixes: B batch, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .data import NUM_FEATURES, Patients

SMALLEST_VARIANCE = 1e-6


class FederatedScaling(nn.Module):
    """(x - mean) / standard deviation, over this site's patients at first, over all sites' later.

    Args:
        mean_F: float32, this site's mean of each feature.
        second_F: float32, this site's mean of each squared feature.
    """

    mean_F: Tensor
    second_F: Tensor
    pooled: Tensor
    own_mean_F: Tensor
    own_second_F: Tensor

    def __init__(self, mean_F: Tensor, second_F: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean_F", torch.zeros_like(mean_F))
        self.register_buffer("second_F", torch.zeros_like(second_F))
        # A counter takes the maximum over the sites: 1 as soon as anyone has trained.
        self.register_buffer("pooled", torch.zeros((), dtype=torch.int64))
        # Not persistent: what is the site's own is no part of the model that travels.
        self.register_buffer("own_mean_F", mean_F, persistent=False)
        self.register_buffer("own_second_F", second_F, persistent=False)

    def forward(self, x_BF: Tensor) -> Tensor:
        if self.training and not self.pooled:
            self.mean_F.copy_(self.own_mean_F)
            self.second_F.copy_(self.own_second_F)
            self.pooled.fill_(1)
        mean_F, second_F = (self.mean_F, self.second_F) if self.pooled else (self.own_mean_F, self.own_second_F)
        variance_F = (second_F - mean_F**2).clamp(min=SMALLEST_VARIANCE)
        return (x_BF - mean_F) / variance_F.sqrt()


class HeartModel(nn.Module):
    """The logit of heart disease, shape (B,), from features as measured, shape (B, F)."""

    def __init__(self, own: Patients) -> None:
        super().__init__()
        features_NF = torch.from_numpy(own.features_NF).double()
        self.scaling = FederatedScaling(features_NF.mean(0).float(), (features_NF**2).mean(0).float())
        self.linear = nn.Linear(NUM_FEATURES, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x_BF: Tensor) -> Tensor:
        logits_B: Tensor = self.linear(self.scaling(x_BF)).squeeze(1)
        return logits_B
