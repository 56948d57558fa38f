"""What noise inside sums costs: the published formulas, numbers worked out by other means, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from foedus.errors import ConfigError
from foedus.privacy.events import DiscreteGaussianSum, NoiselessRelease, SkellamSum
from foedus.privacy.inverse import skellam_table
from foedus.privacy.renyi import ORDERS, concentrated, divergence, epsilon, skellam_divergence, to_epsilon
from foedus.privacy.secagg.quantise import norm_bound
from hypothesis import given, settings
from hypothesis import strategies as st

DELTA, D = 1e-6, 1_000_000


def skellam(z: float, steps: float, releases: int = 100, left: Fraction = Fraction(1)) -> SkellamSum:
    bound = norm_bound(steps, 1.0, D)
    l1 = bound * min(math.sqrt(D), bound)
    variance = (z * steps) ** 2 * float(left)
    return SkellamSum(l2_sensitivity=bound, l1_sensitivity=l1, variance=variance, releases=releases)


def gaussians(z: float, steps: float, num_sites: int = 20, left: int = 20) -> DiscreteGaussianSum:
    return DiscreteGaussianSum(
        l2_sensitivity=norm_bound(steps, 1.0, D),
        site_variance=(z * steps) ** 2 / num_sites,
        num_sites=left,
        num_coordinates=D,
        releases=100,
    )


def continuous(z: float, releases: int) -> float:
    return to_epsilon(releases * np.array(ORDERS) / (2 * z * z), DELTA)


def test_noise_on_whole_numbers_costs_next_to_nothing_more() -> None:
    """The figures of the specification: z = 4, 100 rounds, steps of a 2^14th of the clip norm."""
    assert continuous(4, 100) == pytest.approx(15.33, abs=0.005)
    assert epsilon([skellam(4, 2.0**14)], DELTA) == pytest.approx(15.34, abs=0.005)
    assert epsilon([gaussians(4, 2.0**14)], DELTA) == pytest.approx(15.34, abs=0.005)
    assert epsilon([skellam(4, 4 * math.sqrt(D))], DELTA) < 1.01 * continuous(4, 100)


def test_sites_that_drop_out_or_collude_take_their_noise_with_them() -> None:
    """Sized for 20 sites, 16 are left, 4 of them collude: 12 parts of noise, and 15.3 becomes 21.1."""
    assert continuous(4 * math.sqrt(12 / 20), 100) == pytest.approx(21.1, abs=0.05)
    assert epsilon([gaussians(4, 2.0**14, left=12)], DELTA) == pytest.approx(21.1, abs=0.05)
    # Between the whole orders 2 and 3 the theorem on Skellam says nothing; the chord costs 2 %.
    assert 21.1 < epsilon([skellam(4, 2.0**14, left=Fraction(12, 20))], DELTA) < 21.6


def numeric(variance: float, shift: int, order: float) -> float:
    """The divergence of one coordinate from the probabilities themselves."""
    table = skellam_table(Fraction(variance))
    marks = [int(high) << 64 | int(low) for high, low in zip(table.high_T, table.low_T, strict=True)]
    p = np.array([float(b - a) for a, b in zip([0, *marks], [*marks, 2**128], strict=True)]) / 2.0**128
    shifted, still = np.log(p[:-shift]), np.log(p[shift:])
    return float(np.log(np.sum(np.exp(order * shifted + (1 - order) * still))) / (order - 1))


@pytest.mark.parametrize(
    ("variance", "shift", "order", "expected", "bound"),
    [
        (16.0, 1, 2, 0.06241, 0.071289),
        (16.0, 1, 8, 0.239433, 0.270508),
        (64.0, 4, 4, 0.494407, 0.508301),
        (100.0, 10, 2, 0.994407, 1.009),
    ],
)
def test_the_bound_on_skellam_holds_where_it_was_worked_out(
    variance: float, shift: int, order: int, expected: float, bound: float
) -> None:
    event = SkellamSum(l2_sensitivity=shift, l1_sensitivity=shift, variance=variance)
    assert skellam_divergence(event, order) == pytest.approx(bound, rel=1e-4)
    assert numeric(variance, shift, order) == pytest.approx(expected, rel=1e-3)


def test_the_bound_on_skellam_by_hand() -> None:
    little = SkellamSum(l2_sensitivity=1.0, l1_sensitivity=1.0, variance=0.5)
    assert skellam_divergence(little, 8) == pytest.approx(8 / 1 + 3 / 1)  # (15 + 6) / 1 is more
    plenty = SkellamSum(l2_sensitivity=3.0, l1_sensitivity=5.0, variance=50.0)
    assert skellam_divergence(plenty, 2) == pytest.approx(18 / 100 + (27 + 30) / 10_000)  # 15 / 100 is more
    at = ORDERS.index(2.5)
    chord = (1 * skellam_divergence(plenty, 2) + 2 * skellam_divergence(plenty, 3)) / 2
    assert divergence(plenty)[at] == pytest.approx(chord / 1.5)
    assert divergence(plenty)[ORDERS.index(1.5)] == pytest.approx(0.5 * skellam_divergence(plenty, 2) / 0.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 4), st.integers(0, len(ORDERS) - 1))
def test_no_divergence_is_above_what_is_charged(variance: int, shift: int, place: int) -> None:
    if (order := ORDERS[place]) * shift > 4 * math.sqrt(variance):
        return  # the probabilities that decide lie beyond the table
    event = SkellamSum(l2_sensitivity=shift, l1_sensitivity=shift, variance=float(variance))
    assert numeric(float(variance), shift, order) <= divergence(event)[place] * (1 + 1e-9)


def test_the_sum_of_discrete_gaussians_by_hand() -> None:
    event = DiscreteGaussianSum(l2_sensitivity=2.0, site_variance=0.25, num_sites=3, num_coordinates=5)
    tau = 10 * (math.exp(-(math.pi**2) / 4) + math.exp(-(math.pi**2) / 3))
    assert concentrated(event) == pytest.approx(
        min(math.sqrt(4 / 0.75 + tau * 5 / 2), 2 / math.sqrt(0.75) + tau * math.sqrt(5))
    )
    one = replace(event, num_sites=1)
    assert concentrated(one) == pytest.approx(2 / 0.5)  # a single one is no sum: nothing is off
    assert divergence(one)[ORDERS.index(2)] == pytest.approx(0.5 * 16 * 2)


def test_the_conversion_by_hand() -> None:
    """ρ-concentrated: at α the bound is ρα + ln((α-1)/α) - (ln δ + ln α)/(α-1), the least of which is taken."""
    rho, orders = 0.05, [order for order in ORDERS if order > 1]
    by_hand = min(rho * a + math.log((a - 1) / a) - (math.log(1e-5) + math.log(a)) / (a - 1) for a in orders)
    assert to_epsilon(rho * np.array(ORDERS), 1e-5) == pytest.approx(by_hand)
    # The Gaussian mechanism with σ = 10, a hundred times: 5.222 by two other accountants; 4.887 is exact.
    assert continuous(10, 100) == pytest.approx(5.222, abs=2e-3)


def test_costs_add_up() -> None:
    one = skellam(4, 2.0**14, releases=1)
    together = epsilon([one] * 100, DELTA)
    assert together == pytest.approx(epsilon([replace(one, releases=100)], DELTA))
    assert epsilon([one], DELTA) < together < 100 * epsilon([one], DELTA)
    mixed = epsilon([one, gaussians(4, 2.0**14)], DELTA)
    assert mixed > epsilon([gaussians(4, 2.0**14)], DELTA)
    assert epsilon([], DELTA) == 0.0


def test_what_was_released_without_noise_cannot_be_made_good() -> None:
    assert epsilon([NoiselessRelease()], DELTA) == math.inf
    assert epsilon([skellam(100, 2.0**14), NoiselessRelease()], DELTA) == math.inf


@settings(max_examples=60, deadline=None)
@given(st.floats(0.3, 100), st.floats(1.0, 3.0), st.floats(1e-9, 0.1))
def test_more_noise_or_a_larger_delta_never_costs_more(z: float, more: float, delta: float) -> None:
    event = skellam(z, 2.0**12)
    assert epsilon([skellam(z * more, 2.0**12)], delta) <= epsilon([event], delta)
    assert epsilon([event], min(0.5, delta * more)) <= epsilon([event], delta)
    assert epsilon([replace(event, releases=101)], delta) >= epsilon([event], delta)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0, math.nan])
def test_a_delta_that_is_none_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        epsilon([skellam(4, 2.0**14)], delta)
    with pytest.raises(ConfigError, match="delta"):
        epsilon([NoiselessRelease()], delta)


@pytest.mark.parametrize(
    "changes",
    [
        {"variance": 0.0},
        {"variance": -1.0},
        {"variance": math.nan},
        {"variance": math.inf},
        {"l2_sensitivity": math.nan},
        {"l2_sensitivity": -1.0},
        {"l1_sensitivity": 0.0},
        {"l1_sensitivity": math.inf},
        {"releases": 0},
        {"releases": 1.5},
        {"releases": True},
    ],
)
def test_events_that_cannot_be_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        replace(skellam(4, 2.0**14), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"site_variance": 0.24},
        {"site_variance": math.nan},
        {"num_sites": 0},
        {"num_coordinates": 0},
        {"l2_sensitivity": math.inf},
        {"releases": -1},
    ],
)
def test_sums_of_discrete_gaussians_that_cannot_be_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        replace(gaussians(4, 2.0**14), **changes)
