"""Training in which some sites lie: one gradient of every site, one step of the model, and again.

Shape suffixes: N sites, A of them attackers (the last ones), H = N - A honest, D parameters, B the
images of a batch, P pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from _images import CLASSES, Images, Indices, Labelled
from foedus.aggregators.aggregator import Aggregator
from foedus.errors import InvalidUpdate
from foedus.simulations.attacks import attack, label_flip
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

# How many images the server itself has, for the rule that trusts an update of its own.
ROOT_IMAGES = 100

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Training:
    """How the sites train.

    Attributes:
        momentum: what sites send is m ← momentum m + gradient.
        lying_momentum: whether attackers that train do the same, or send their gradient.
    """

    steps: int
    batch: int
    learning_rate: float
    momentum: float
    lying_momentum: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Lie:
    """An attack by its name, "none" among them, with its parameters."""

    name: str
    parameters: dict[str, Any]


def network(num_pixels: int) -> nn.Module:
    """The network that sites train: one hidden layer of 64 units, small enough for hundreds of runs on two cores."""
    return nn.Sequential(nn.Linear(num_pixels, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def final_accuracy(
    images: Images, sites: Sequence[Indices], num_attackers: int, lie: Lie, aggregator: Aggregator, how: Training
) -> float:
    """The share of test images told right after the last step, from 0 to 1.

    Where a rule refuses a round, as it does once a model has grown beyond all bounds, training ends there.
    """
    torch.manual_seed(how.seed)
    rng = np.random.default_rng(how.seed)
    model = network(images.train.pixels_NP.shape[1])
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    gradients = _gradients(model, parameters)
    labels_N = images.train.labels_N
    sites = [*sites, rng.choice(len(labels_N), ROOT_IMAGES, replace=False)]
    honest = len(sites) - 1 - num_attackers
    lying = slice(honest, honest + num_attackers)
    momenta_N = np.full((len(sites), 1), how.momentum, np.float32)
    if not how.lying_momentum:
        momenta_N[lying] = 0
    tell = _teller(lie)
    model_D = torch.cat([value.flatten() for value in parameters.values()]).numpy()
    momentum_ND = np.zeros((len(sites), model_D.size), np.float32)
    history_ND = np.zeros((len(sites) - 1, model_D.size), np.float32)
    last_D = np.zeros(model_D.size, np.float32)
    for step in range(how.steps):
        batch_NB = np.stack([site[rng.integers(len(site), size=how.batch)] for site in sites])
        batch = Labelled(images.train.pixels_NP[batch_NB], labels_N[batch_NB])
        if lie.name == "label-flip":
            batch.labels_N[lying] = label_flip(batch.labels_N[lying], CLASSES)
        momentum_ND *= momenta_N
        momentum_ND += gradients(model_D, batch)
        sent_ND = momentum_ND[:-1].copy()
        sent_ND[lying] = tell(sent_ND[:honest], sent_ND[lying], how.seed + step)
        history_ND += sent_ND
        beside = {"none": None, "optional": last_D[None], "required": momentum_ND[-1:], "history": history_ND}
        try:
            last_D = aggregator(sent_ND, reference=beside[aggregator.rule.reference], seed=step).update_D
        except InvalidUpdate:
            break
        model_D -= how.learning_rate * last_D
    return _accuracy(model, parameters, model_D, images.test)


# What attackers send, of what the honest sites send, what they would send themselves, and a seed.
Teller = Callable[[Rows, Rows, int], Rows]


def _teller(lie: Lie) -> Teller:
    if lie.name in ("none", "label-flip"):  # these lie by their data, if at all
        return lambda _honest_HD, own_AD, _seed: own_AD
    send = attack(lie.name, **lie.parameters)

    def together(honest_HD: Rows, own_AD: Rows, seed: int) -> Rows:
        return send(honest_HD, len(own_AD), len(own_AD) + len(honest_HD), seed)

    def each(honest_HD: Rows, own_AD: Rows, seed: int) -> Rows:
        return np.concatenate([send(honest_HD, 1, len(own_AD) + len(honest_HD), seed, own_D=own_D) for own_D in own_AD])

    return {"sign-flip": each, "mimic": _Mimicry(together)}.get(lie.name, together)


@dataclass(slots=True)
class _Mimicry:
    """Copies to the end the site that was worth copying in the first step, as the authors' code does."""

    choose: Teller
    copied: int | None = None

    def __call__(self, honest_HD: Rows, own_AD: Rows, seed: int) -> Rows:
        if self.copied is None:
            row_D = self.choose(honest_HD, own_AD, seed)[0]
            self.copied = int((honest_HD == row_D).all(axis=1).argmax())
        return np.broadcast_to(honest_HD[self.copied], own_AD.shape)


def _gradients(model: nn.Module, like: dict[str, Tensor]) -> Callable[[Rows, Labelled], Rows]:
    """Of a model and a batch of every site, the N x D gradients, all sites at once."""

    def loss(model_D: Tensor, pixels_BP: Tensor, labels_B: Tensor) -> Tensor:
        told = functional_call(model, _unflattened(model_D, like), pixels_BP)
        return nn.functional.cross_entropy(told, labels_B)

    of_each = vmap(grad(loss), in_dims=(None, 0, 0))
    return lambda model_D, batch: of_each(*map(torch.from_numpy, (model_D, batch.pixels_NP, batch.labels_N))).numpy()


def _unflattened(model_D: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    parts = model_D.split([value.numel() for value in like.values()])
    return {name: part.view_as(value) for (name, value), part in zip(like.items(), parts, strict=True)}


def _accuracy(model: nn.Module, like: dict[str, Tensor], model_D: Rows, test: Labelled) -> float:
    parameters = _unflattened(torch.from_numpy(model_D), like)
    with torch.no_grad():
        told = [functional_call(model, parameters, part) for part in torch.from_numpy(test.pixels_NP).split(1000)]
    return float((torch.cat(told).argmax(dim=1).numpy() == test.labels_N).mean())
