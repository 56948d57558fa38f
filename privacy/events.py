"""What happened to somebody's data, as values. What it costs is worked out from them: see ``renyi``.

A release is counted against what it protects: with updates a site, whose whole update may be left out; in analytics a
person, whose records may.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ConfigError

MIN_DEVIATION = 0.5  # of one site's discrete Gaussian noise; below, the theorem says nothing


@dataclass(frozen=True, slots=True)
class NoiselessRelease:
    """Something was released as it is. No ε holds from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamSum:
    """A sum of whole numbers was released with Skellam noise on every coordinate.

    Attributes:
        l2_sensitivity: Δ₂, the largest L2 norm of what the protected one adds to the sum, in steps.
        l1_sensitivity: Δ₁, its largest L1 norm.
        variance: μ, of the noise in the sum that nobody knows, in squared steps.
        releases: so many times.

    Raises:
        ConfigError: a field is not finite, negative, or leaves no noise at all.
    """

    l2_sensitivity: float
    l1_sensitivity: float
    variance: float
    releases: int = 1

    def __post_init__(self) -> None:
        _require_sensitivity("l2_sensitivity", self.l2_sensitivity)
        _require_sensitivity("l1_sensitivity", self.l1_sensitivity)
        if self.l1_sensitivity < self.l2_sensitivity:
            raise ConfigError(f"l1_sensitivity {self.l1_sensitivity} is below l2_sensitivity {self.l2_sensitivity}")
        if not (math.isfinite(self.variance) and self.variance > 0):
            raise ConfigError(f"the noise has variance {self.variance}, expected a positive number")
        _require_count("releases", self.releases)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianSum:
    """A sum of whole numbers was released, to which several sites had each added discrete Gaussian noise.

    Attributes:
        l2_sensitivity: Δ₂, the largest L2 norm of what the protected one adds to the sum, in steps.
        site_variance: σ², of one site's noise, in squared steps.
        num_sites: so many sites' noise nobody knows.
        num_coordinates: length of the sum.
        releases: so many times.

    Raises:
        ConfigError: a field is not finite, negative, or below what the theorem holds for (σ < 1/2).
    """

    l2_sensitivity: float
    site_variance: float
    num_sites: int
    num_coordinates: int
    releases: int = 1

    def __post_init__(self) -> None:
        _require_sensitivity("l2_sensitivity", self.l2_sensitivity)
        if not (math.isfinite(self.site_variance) and self.site_variance >= MIN_DEVIATION**2):
            raise ConfigError(f"site_variance is {self.site_variance}, expected at least {MIN_DEVIATION**2}")
        _require_count("num_sites", self.num_sites)
        _require_count("num_coordinates", self.num_coordinates)
        _require_count("releases", self.releases)


Event = NoiselessRelease | SkellamSum | DiscreteGaussianSum


def _require_sensitivity(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{name} is {value}, expected a number from 0 on")


def _require_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} is {value}, expected a whole number from 1 on")
