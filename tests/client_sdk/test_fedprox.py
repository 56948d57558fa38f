"""FedProx against its closed form (Li et al. 2020, eq. 2)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from foedus.client_sdk.task import TrainingJob
from foedus.client_sdk.torch_task import TorchTask
from foedus.client_sdk.torch_trainer import add_proximal_gradient
from foedus.plan import LocalTraining
from torch import nn


class Point(nn.Module):
    """Two weights, of which the loss sees only the first."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0, -1.0]))
        self.unused = nn.Parameter(torch.tensor([5.0]))


CURVATURE, OPTIMUM = 1.5, torch.tensor([6.0, 3.0])


def quadratic(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return CURVATURE / 2 * ((model.w - OPTIMUM) ** 2).sum()


def trained(mu: float, steps: int, learning_rate: float, **training) -> tuple[np.ndarray, np.ndarray]:
    task = TorchTask(name="t", model=Point, loss=quadratic, train_data=lambda: [0.0])
    plan = LocalTraining(steps=steps, learning_rate=learning_rate, proximal_mu=mu, **training)
    received = task.initial(0)
    result = task.train(received, TrainingJob(run="r", round=1, site="s", training=plan, seed=0))
    return received.arrays()["w"], result.model.arrays()["w"]


@pytest.mark.parametrize("mu", [0.0, 0.01, 0.5, 4.0])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_gradient_descent_follows_the_closed_form_at_every_step(mu: float, steps: int) -> None:
    """On a/2·(w − c)² the iterates are w* + (w0 − w*)(1 − η(a + μ))^T with w* = (ac + μw0)/(a + μ)."""
    start, end = trained(mu, steps, 0.1)
    fixed = (CURVATURE * OPTIMUM.numpy() + mu * start) / (CURVATURE + mu)
    np.testing.assert_allclose(end, fixed + (start - fixed) * (1 - 0.1 * (CURVATURE + mu)) ** steps, rtol=1e-5)


def test_training_ends_at_the_proximal_point() -> None:
    start, end = trained(2.0, 200, 0.2)
    np.testing.assert_allclose(end, (CURVATURE * OPTIMUM.numpy() + 2.0 * start) / (CURVATURE + 2.0), rtol=1e-5)


def test_the_term_is_inside_what_adam_sees() -> None:
    start, end = trained(2.0, 800, 0.02, optimizer="adam")
    np.testing.assert_allclose(end, (CURVATURE * OPTIMUM.numpy() + 2.0 * start) / (CURVATURE + 2.0), rtol=1e-3)


def test_the_gradient_is_that_of_half_mu_times_the_squared_norm() -> None:
    torch.manual_seed(0)
    w, anchor, slope = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4), torch.randn(3, 4)
    (expected,) = torch.autograd.grad((slope * w).sum() + 0.7 / 2 * torch.linalg.vector_norm(w - anchor) ** 2, w)
    w.grad = slope.clone()
    add_proximal_gradient([w], [anchor], 0.7)
    torch.testing.assert_close(w.grad, expected)


def test_a_weight_without_gradient_is_pulled_too() -> None:
    w = torch.tensor([3.0, 1.0], requires_grad=True)
    add_proximal_gradient([w], [torch.tensor([1.0, 1.0])], 0.5)
    assert torch.equal(w.grad, torch.tensor([1.0, 0.0]))


def test_a_stronger_term_keeps_the_weights_closer() -> None:
    distances = [np.linalg.norm(np.subtract(*trained(mu, 40, 0.05))) for mu in (0.0, 0.1, 1.0, 10.0)]
    assert distances == sorted(distances, reverse=True)
    assert distances[3] < 0.3 * distances[0]
