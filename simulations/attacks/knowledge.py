"""What attackers know of a round, and what an attack makes of it.

Shape suffixes: H honest updates, A attackers, D parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError

Reals: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What the attackers know when they write their updates.

    Attributes:
        honest_HD: float64, the honest updates, or what the attackers guess them to be.
        num_attackers: A, how many of them act together.
        n: how many updates the round has, theirs included.
        seed: of everything random.
        own_D: float64, what they trained themselves, for a backdoor on poisoned data; None if nothing.
        last_D: float64, the step of the global model in the round before; None if they saw none.
    """

    honest_HD: Reals
    num_attackers: int
    n: int
    seed: int = 0
    own_D: Reals | None = None
    last_D: Reals | None = None

    @property
    def mean(self) -> Reals:
        """μ, the mean of the honest updates."""
        mean_D: Reals = self.honest_HD.mean(axis=0)
        return mean_D

    @property
    def centred(self) -> Reals:
        """x_i - μ."""
        return self.honest_HD - self.mean

    def std(self, ddof: int) -> Reals:
        """σ, the standard deviation of each parameter over the honest updates; 0 of a single one."""
        squares_D: Reals = (self.centred**2).sum(axis=0)
        return np.sqrt(squares_D / max(len(self.honest_HD) - ddof, 1))


# One row that all attackers send alike, or one for each of them; float64.
Formula: TypeAlias = Callable[[Knowledge], Reals]


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack with its parameters set, in the one shape in which loops call attacks."""

    formula: Formula

    def __call__(
        self,
        honest_HD: npt.ArrayLike,
        num_attackers: int,
        n: int,
        seed: int,
        *,
        own_D: npt.ArrayLike | None = None,
        last_D: npt.ArrayLike | None = None,
    ) -> npt.NDArray[np.float32]:
        """The attackers' updates, float32 of shape A x D; the arguments are those of ``Knowledge``.

        Computed in float64. What float32 cannot hold becomes infinite.

        Raises:
            ConfigError: the shapes or the numbers do not fit together, or the attack needs what is not known.
        """
        rows_HD = np.asarray(honest_HD, np.float64)
        if rows_HD.ndim != 2 or not len(rows_HD):
            raise ConfigError(f"the honest updates have shape {rows_HD.shape}, expected H x D with H of 1 or more")
        if not 1 <= num_attackers < n:
            raise ConfigError(f"there are {num_attackers} attackers among {n} updates, expected 1 to {n - 1}")
        known = Knowledge(
            rows_HD, num_attackers, n, seed, _row("own_D", own_D, rows_HD), _row("last_D", last_D, rows_HD)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self.formula(known)
            return np.broadcast_to(rows, (num_attackers, rows_HD.shape[1])).astype(np.float32)


def _row(name: str, values: npt.ArrayLike | None, rows_HD: Reals) -> Reals | None:
    if values is None:
        return None
    row_D = np.asarray(values, np.float64)
    if row_D.shape != rows_HD.shape[1:]:
        raise ConfigError(f"{name} has shape {row_D.shape}, expected {rows_HD.shape[1:]} as the honest updates")
    return row_D
