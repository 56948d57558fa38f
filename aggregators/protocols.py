"""What a rule is: a frozen value that knows its conditions and decides.

Shape suffixes: N updates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, TooFewUpdates
from .decision import Decision
from .geometry import Geometry

# What a rule wants to see beside the round's updates: nothing; a trusted row (or the last
# aggregate); for each update, the sum of its site's updates until now, this one included.
Reference: TypeAlias = Literal["none", "optional", "required", "history"]


class _Conditions(Protocol):
    """What every rule says of itself. It is a dataclass, so that another f makes another rule of it."""

    weighable: ClassVar[bool]  # whether the shares of the updates mean anything to it
    reference: ClassVar[Reference]

    @property
    def f(self) -> int | None:
        """How many Byzantine updates it is set up to withstand; None: as many as its theorem allows."""
        ...

    def require(self, n: int) -> None:
        """Check that its theorem covers n updates.

        Raises:
            TooFewUpdates: it does not.
        """
        ...


@runtime_checkable
class PlainRule(_Conditions, Protocol):
    """Decides without looking at the updates: the mean, and the rules of one coordinate at a time."""

    def decide(self, shares_N: npt.NDArray[np.float64]) -> Decision:
        """From the shares of the updates (float64, not negative, summing to 1)."""
        ...


@runtime_checkable
class DistanceRule(_Conditions, Protocol):
    """Decides by the distances between the updates."""

    def judge(self, geometry: Geometry, shares_N: npt.NDArray[np.float64]) -> Decision:
        """From the geometry of the updates, and their shares (float64, not negative, summing to 1)."""
        ...


@runtime_checkable
class SampleRule(_Conditions, Protocol):
    """Decides by the distances between the updates in random samples of their coordinates."""

    @property
    def samples(self) -> int:
        """How many samples it wants."""
        ...

    @property
    def coordinates(self) -> int:
        """How many coordinates make one; all, where the updates have no more."""
        ...

    def judge_samples(self, geometries: Sequence[Geometry], shares_N: npt.NDArray[np.float64]) -> Decision:
        """From the geometry of the updates in each sample, and their shares (float64, not negative, summing to 1)."""
        ...


Rule: TypeAlias = PlainRule | DistanceRule | SampleRule


R = TypeVar("R", bound=_Conditions)


def expecting(rule: R, f: int) -> R:
    """The same rule with another f: fewer liars are left once some have been refused."""
    return cast(R, replace(cast(Any, rule), f=f))


def require_count(name: str, value: int, at_least: int = 0) -> None:
    """Refuse a parameter that is no whole number from ``at_least`` on.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(f"{name} is {value!r}, expected a whole number from {at_least} on")


def require_positive(name: str, value: float) -> None:
    """Refuse a parameter that is no finite number above 0.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{name} is {value!r}, expected a positive number")


def require_updates(rule: str, n: int, needed: int, condition: str) -> None:
    """Refuse a round that a rule's theorem does not cover.

    Raises:
        TooFewUpdates: n is below ``needed``.
    """
    if n < needed:
        raise TooFewUpdates(
            f"{rule} needs {condition}: at least {needed} updates, got {n}",
            hint="ask more sites, raise the quorum, or expect fewer liars (a smaller f)",
        )
