"""The exact vectors through the engine, as a caller meets the rules, with each kernel there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from foedus.aggregators import Aggregate, engine, rule
from foedus.aggregators.kernel import Kernel
from foedus.aggregators.kernel_choice import best_kernel
from foedus.aggregators.kernel_numpy import NumpyKernel
from robust_vectors import CASES, SPECIAL, rows

KERNELS: list[Kernel] = list({kernel.name: kernel for kernel in (best_kernel(), NumpyKernel())}.values())
CLOSE = {"rtol": 2e-6, "atol": 2e-6}


@pytest.fixture(params=KERNELS, ids=lambda kernel: kernel.name, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "best_kernel", lambda: request.param)


Case = dict[str, Any]
# How a caller asks for what each entry of a case expects.
ASKED: dict[str, Callable[[Case, np.ndarray], Aggregate]] = {
    "fedavg": lambda case, updates_ND: rule("mean")(updates_ND, case["counts"]),
    "median": lambda _, updates_ND: rule("median")(updates_ND),
    "trimmed_mean": lambda case, updates_ND: rule("trimmed-mean", f=case["expect"]["trimmed_mean"]["k"])(updates_ND),
    "meamed": lambda case, updates_ND: rule("meamed", f=case["f"])(updates_ND),
    "krum": lambda case, updates_ND: rule("krum", f=case["f"])(updates_ND),
    "multi_krum": lambda case, updates_ND: rule("multi-krum", f=case["f"])(updates_ND),
    "bulyan_paper": lambda case, updates_ND: rule("bulyan", f=case["f"], selections="n-2f")(updates_ND),
    "bulyan_minus2": lambda case, updates_ND: rule("bulyan", f=case["f"])(updates_ND),
    "mda": lambda case, updates_ND: rule("mda", f=case["f"])(updates_ND),
    "dnc_all_coords": lambda case, updates_ND: rule("dnc", f=case["f"])(updates_ND),
    "geomed_exact": lambda _, updates_ND: rule("geometric-median", iterations=5000)(updates_ND),
    "geomed_weighted_exact": lambda case, updates_ND: rule("geometric-median", iterations=5000, weighting="examples")(
        updates_ND, case["counts"]
    ),
    "centred_clip_tau1_L1_from_zero": lambda _, updates_ND: rule("centered-clipping", clip=1.0)(updates_ND),
    "centred_clip_tau1_L3_from_zero": lambda _, updates_ND: rule("centered-clipping", clip=1.0, iterations=3)(
        updates_ND
    ),
    "centred_clip_tau2_L2_from_row0": lambda _, updates_ND: rule("centered-clipping", clip=2.0, iterations=2)(
        updates_ND, reference=updates_ND[:1]
    ),
    "norm_bound_2": lambda _, updates_ND: rule("mean", clip_norm=2.0)(updates_ND),
    "fltrust": lambda case, updates_ND: rule("fltrust")(
        updates_ND, reference=np.array([case["expect"]["fltrust"]["server"]])
    ),
}


@pytest.mark.parametrize(("name", "asked"), [(name, asked) for name in CASES for asked in ASKED])
def test_every_case(name: str, asked: str) -> None:
    case = CASES[name]
    if asked not in case["expect"]:
        pytest.skip("n and f do not allow this rule")
    expected = case["expect"][asked]
    if asked == "mda" and expected["minimisers"] > 1:
        pytest.skip("several subsets have the least diameter")
    result = ASKED[asked](case, rows(case))
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if asked.startswith("geomed") else CLOSE
    np.testing.assert_allclose(result.update_D, expected["value"], **tolerance)  # type: ignore[arg-type]
    if "indices" in expected or "index" in expected:
        assert result.selected == tuple(sorted(expected.get("indices", [expected.get("index")])))
    if "scores" in expected:
        np.testing.assert_allclose(result.scores, expected["scores"], rtol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CASES)
def test_mixing_before_a_rule(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"].get("nnm", {})
    f = case["f"]
    for asked, value in expected.items():
        if asked == "then_median":
            np.testing.assert_allclose(rule("median", f=f, pre=["nnm"])(rows(case)).update_D, value, **CLOSE)
        if asked == "then_trimmed_mean":
            np.testing.assert_allclose(rule("trimmed-mean", f=f, pre=["nnm"])(rows(case)).update_D, value, **CLOSE)


def test_what_is_not_finite() -> None:
    case = SPECIAL["nonfinite"]
    updates_ND, expected, dropped = rows(case), case["expect"], tuple(case["dropped"])
    median = rule("median", f=3)(updates_ND)
    np.testing.assert_allclose(median.update_D, expected["median"], **CLOSE)
    assert tuple(median.refused) == median.rejected == dropped
    trimmed = rule("trimmed-mean", f=3)(updates_ND)
    np.testing.assert_allclose(trimmed.update_D, expected["trimmed_mean_k0"], **CLOSE)
    assert rule("krum", f=3)(updates_ND).selected == (expected["krum_index_in_original"],)


def test_one_row_too_far_to_square() -> None:
    case = SPECIAL["huge_row"]
    updates_ND, expected = rows(case), case["expect"]
    assert rule("krum", f=1)(updates_ND).selected == (expected["krum_index"],)
    assert rule("multi-krum", f=1)(updates_ND).selected == tuple(sorted(expected["multi_krum_m4"]))
    assert rule("mda", f=1)(updates_ND).selected == tuple(expected["mda_indices"])
    np.testing.assert_allclose(rule("median")(updates_ND).update_D, expected["median"], **CLOSE)
    np.testing.assert_allclose(rule("trimmed-mean", f=1)(updates_ND).update_D, expected["trimmed_mean_k1"], **CLOSE)


def test_a_clique_below_the_limit_does_not_win() -> None:
    case = SPECIAL["clique_below_limit"]
    result = rule("krum", f=case["f"])(rows(case))
    assert result.selected == (case["expect"]["krum_index"],)
    np.testing.assert_allclose(result.scores, case["expect"]["krum_scores"], rtol=1e-6)  # type: ignore[arg-type]
    assert result.cliques == ((5, 6, 7, 8),)


def test_ties_around_the_median() -> None:
    case = SPECIAL["meamed_tie"]
    np.testing.assert_array_equal(rule("meamed", f=case["f"])(rows(case)).update_D, case["expect"]["meamed"])
