"""What releases cost together: their Rényi divergences added up, and converted to (ε, δ).

Shape suffix: A orders of the divergence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .events import DiscreteGaussianSum, Event, NoiselessRelease, SkellamSum

# Fine where ε is large, and far out where it is small.
ORDERS: Final = (*(1 + tenths / 10 for tenths in range(1, 100)), *range(11, 257), *(2**power for power in range(9, 17)))

Costs = npt.NDArray[np.float64]


def epsilon(events: Iterable[Event], delta: float) -> float:
    """The ε of everything that happened, for this δ. Nothing happened: 0.

    Raises:
        ConfigError: δ is not within 0 and 1.
    """
    total_A = np.zeros(len(ORDERS))
    for event in events:
        total_A += divergence(event)
    return to_epsilon(total_A, delta) if total_A.any() else 0.0


def divergence(event: Event) -> Costs:
    """The event's Rényi divergence at each of ``ORDERS``, both ways round."""
    match event:
        case NoiselessRelease():
            return np.full(len(ORDERS), np.inf)
        case SkellamSum():
            return event.releases * _at_all_orders(event)
        case DiscreteGaussianSum():
            return event.releases * 0.5 * concentrated(event) ** 2 * np.array(ORDERS, np.float64)
        case _:
            assert_never(event)


def to_epsilon(divergence_A: Costs, delta: float) -> float:
    """ε = min over α of D + ln((α - 1)/α) - (ln δ + ln α)/(α - 1) (Canonne et al. 2020, proposition 12).

    Raises:
        ConfigError: δ is not within 0 and 1.
    """
    if not 0 < delta < 1:
        raise ConfigError(f"delta is {delta}, expected a number between 0 and 1")
    order_A = np.array(ORDERS, np.float64)
    epsilon_A = divergence_A + np.log1p(-1 / order_A) - (math.log(delta) + np.log(order_A)) / (order_A - 1)
    least = float(np.min(epsilon_A))
    return math.inf if math.isnan(least) else max(0.0, least)


def skellam_divergence(event: SkellamSum, order: int) -> float:
    """At a whole order α > 1 (Agarwal, Kairouz and Liu 2021, corollary 3.6), of one release.

    αΔ₂²/2μ + min(((2α - 1)Δ₂² + 6Δ₁)/4μ², 3Δ₁/2μ).
    """
    squared, l1, mu = event.l2_sensitivity**2, event.l1_sensitivity, event.variance
    extra = min(((2 * order - 1) * squared + 6 * l1) / (4 * mu**2), 3 * l1 / (2 * mu))
    return order * squared / (2 * mu) + extra


def concentrated(event: DiscreteGaussianSum) -> float:
    """ε of one release, which is ½ε²-concentrated (Kairouz, Liu and Steinke 2021, theorem 1).

    min(√(Δ₂²/nσ² + τd/2), Δ₂/(σ√n) + τ√d) with τ = 10 Σ_{k<n} e^(-2π²σ²k/(k+1)): τ is what a sum of discrete
    Gaussians is off one.
    """
    n, d, variance = event.num_sites, event.num_coordinates, event.site_variance
    tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, n))
    shift = event.l2_sensitivity / math.sqrt(n * variance)
    return min(math.sqrt(shift**2 + tau * d / 2), shift + tau * math.sqrt(d))


def _at_all_orders(event: SkellamSum) -> Costs:
    """The theorem is about whole orders; between two of them, (α - 1) D_α lies below the chord, being convex.

    It is 0 at α = 1.
    """
    whole = [1, *(int(order) for order in ORDERS if order == int(order))]
    curve = [(order - 1) * skellam_divergence(event, order) for order in whole]
    order_A = np.array(ORDERS, np.float64)
    return np.asarray(np.interp(order_A, whole, curve) / (order_A - 1))
