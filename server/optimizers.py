"""Server optimizers: how a round's mean update moves the model.

Each acts on one block of coordinates at a time and keeps nothing between calls. Its states are
float32 at rest like the model itself: half the disk of float64, and their rounding (6e-8 of
their value) fades as β does. Arithmetic inside a step is float64. Because a state always passes
through its stored form between two rounds, a resumed run repeats an uninterrupted one bit for bit.

Shape suffix: C the coordinates of one block. w parameters, Δ mean update, η learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ..plan import ServerOptimizerPlan

Block = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]
States = tuple[Block, ...]


class ServerOptimizer(Protocol):
    """One way to move the model."""

    @property
    def name(self) -> str:
        """As in the plan; also stored with the states."""
        ...

    @property
    def initial_states(self) -> tuple[float, ...]:
        """What each state holds everywhere before the first round; empty for no state."""
        ...

    def step(self, params_C: Block, mean_C: Block, states: States) -> tuple[Block, States]:
        """The new parameters and states of one block; the arguments stay as they were.

        A result beyond float32 comes back as infinity or NaN: the caller refuses it.
        """
        ...


@dataclass(frozen=True, slots=True)
class FedAvg:
    """w ← w + ηΔ (McMahan et al. 2017, algorithm 1, with η = 1)."""

    name: ClassVar[str] = "fedavg"
    learning_rate: float = 1.0

    @property
    def initial_states(self) -> tuple[float, ...]:
        """None."""
        return ()

    def step(self, params_C: Block, mean_C: Block, states: States) -> tuple[Block, States]:
        """As ``ServerOptimizer.step``."""
        return _moved(params_C, self.learning_rate, _wide(mean_C)), states


@dataclass(frozen=True, slots=True)
class FedAvgM:
    """u ← βu + Δ, w ← w + ηu (Hsu et al. 2019, section 4.2)."""

    name: ClassVar[str] = "fedavgm"
    learning_rate: float = 1.0
    momentum: float = 0.9

    @property
    def initial_states(self) -> tuple[float, ...]:
        """u = 0."""
        return (0.0,)

    def step(self, params_C: Block, mean_C: Block, states: States) -> tuple[Block, States]:
        """As ``ServerOptimizer.step``; states (u,)."""
        (u_C,) = states
        new_u_C = self.momentum * _wide(u_C) + _wide(mean_C)
        return _moved(params_C, self.learning_rate, new_u_C), (_narrow(new_u_C),)


@dataclass(frozen=True, slots=True)
class FedAdam:
    """Reddi et al. 2021, algorithm 2, FEDADAM: v ← β₂v + (1−β₂)Δ².

    m ← β₁m + (1−β₁)Δ, w ← w + ηm/(√v + τ); no bias correction, v starts at τ². Δ is squared,
    not m as in the paper's first print.
    """

    name: ClassVar[str] = "fedadam"
    learning_rate: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    @property
    def initial_states(self) -> tuple[float, ...]:
        """m = 0, v = τ²."""
        return (0.0, self.tau**2)

    def step(self, params_C: Block, mean_C: Block, states: States) -> tuple[Block, States]:
        """As ``ServerOptimizer.step``; states (m, v)."""
        square_C = np.square(_wide(mean_C))
        v_C = self.beta2 * _wide(states[1]) + (1 - self.beta2) * square_C
        return _adaptive(params_C, mean_C, states[0], v_C, self.beta1, self.learning_rate, self.tau)


@dataclass(frozen=True, slots=True)
class FedYogi:
    """Reddi et al. 2021, algorithm 2, FEDYOGI: v ← v − (1−β₂)Δ² sign(v − Δ²); else as FedAdam."""

    name: ClassVar[str] = "fedyogi"
    learning_rate: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    @property
    def initial_states(self) -> tuple[float, ...]:
        """m = 0, v = τ²."""
        return (0.0, self.tau**2)

    def step(self, params_C: Block, mean_C: Block, states: States) -> tuple[Block, States]:
        """As ``ServerOptimizer.step``; states (m, v)."""
        square_C = np.square(_wide(mean_C))
        v_C = _wide(states[1])
        v_C = v_C - (1 - self.beta2) * square_C * np.sign(v_C - square_C)
        return _adaptive(params_C, mean_C, states[0], v_C, self.beta1, self.learning_rate, self.tau)


@dataclass(frozen=True, slots=True)
class FedAdagrad:
    """Reddi et al. 2021, algorithm 2, FEDADAGRAD: v ← v + Δ²; else as FedAdam, with β₁ = 0."""

    name: ClassVar[str] = "fedadagrad"
    learning_rate: float = 0.1
    beta1: float = 0.0
    tau: float = 1e-3

    @property
    def initial_states(self) -> tuple[float, ...]:
        """m = 0, v = τ²."""
        return (0.0, self.tau**2)

    def step(self, params_C: Block, mean_C: Block, states: States) -> tuple[Block, States]:
        """As ``ServerOptimizer.step``; states (m, v)."""
        v_C = _wide(states[1]) + np.square(_wide(mean_C))
        return _adaptive(params_C, mean_C, states[0], v_C, self.beta1, self.learning_rate, self.tau)


_OPTIMIZERS: dict[str, type[FedAvg | FedAvgM | FedAdam | FedYogi | FedAdagrad]] = {
    kind.name: kind for kind in (FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad)
}


def optimizer_for(plan: ServerOptimizerPlan) -> ServerOptimizer:
    """The optimizer a plan asks for."""
    return _OPTIMIZERS[plan.name](**plan.model_dump(exclude={"name"}))


def _adaptive(
    params_C: Block, mean_C: Block, m_C: Block, v_C: Wide, beta1: float, learning_rate: float, tau: float
) -> tuple[Block, States]:
    new_m_C = beta1 * _wide(m_C) + (1 - beta1) * _wide(mean_C)
    return _moved(params_C, learning_rate, new_m_C / (np.sqrt(v_C) + tau)), (_narrow(new_m_C), _narrow(v_C))


def _moved(params_C: Block, learning_rate: float, direction_C: Wide) -> Block:
    return _narrow(_wide(params_C) + learning_rate * direction_C)


def _wide(block_C: Block) -> Wide:
    return block_C.astype(np.float64)


def _narrow(block_C: Wide) -> Block:
    with np.errstate(over="ignore"):
        return block_C.astype(np.float32)
