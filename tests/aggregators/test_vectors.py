"""Every rule against exact vectors, on float64 distances and a plain combination."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from by_definition import combined, geometry, uniform
from foedus.aggregators.bulyan import Bulyan
from foedus.aggregators.centered_clipping import CenteredClipping
from foedus.aggregators.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from foedus.aggregators.decision import Decision
from foedus.aggregators.dnc import DivideAndConquer
from foedus.aggregators.fltrust import FLTrust
from foedus.aggregators.foolsgold import FoolsGold
from foedus.aggregators.geometric_median import GeometricMedian, weiszfeld_step
from foedus.aggregators.krum import Krum, MultiKrum
from foedus.aggregators.mda import MinimumDiameter
from foedus.aggregators.mixing import NearestNeighbourMixing, in_buckets, mixed
from foedus.aggregators.protocols import DistanceRule, PlainRule, expecting
from foedus.aggregators.reach import within_reach
from foedus.errors import TooFewUpdates
from robust_vectors import CASES, SPECIAL, rows, with_rule


def _decision(
    rule: PlainRule | DistanceRule, updates_ND: np.ndarray, references_RD: np.ndarray | None = None
) -> Decision:
    if isinstance(rule, PlainRule):
        return rule.decide(uniform(len(updates_ND)))
    return rule.judge(geometry(updates_ND, references_RD), uniform(len(updates_ND)))


def _value(rule: PlainRule | DistanceRule, updates_ND: np.ndarray) -> np.ndarray:
    return combined(_decision(rule, updates_ND).combination, updates_ND)


@pytest.mark.parametrize("name", with_rule("krum"))
def test_krum(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"]["krum"]
    decision = _decision(Krum(case["f"]), rows(case))
    assert decision.selected == (expected["index"],)
    np.testing.assert_allclose(decision.scores_N, expected["scores"], rtol=1e-13)
    np.testing.assert_array_equal(combined(decision.combination, rows(case)), expected["value"])


@pytest.mark.parametrize("name", with_rule("multi_krum"))
def test_multi_krum(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"]["multi_krum"]
    rule = MultiKrum(case["f"])
    decision = _decision(rule, rows(case))
    assert decision.selected == tuple(sorted(expected["indices"]))
    np.testing.assert_allclose(combined(decision.combination, rows(case)), expected["value"], rtol=1e-13)
    assert decision.combination.weights_N.tobytes() == (  # type: ignore[union-attr]
        _decision(replace(rule, m=expected["m"]), rows(case)).combination.weights_N.tobytes()  # type: ignore[union-attr]
    )
    by_counts = rule.judge(geometry(rows(case)), np.array(case["counts"]) / np.sum(case["counts"]))
    np.testing.assert_allclose(
        combined(by_counts.combination, rows(case)), expected["value_weighted_by_counts"], rtol=1e-13
    )


@pytest.mark.parametrize("name", with_rule("bulyan_paper"))
@pytest.mark.parametrize(("selections", "key"), [("n-2f", "bulyan_paper"), ("n-2f-2", "bulyan_minus2")])
def test_bulyan(name: str, selections: Any, key: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"][key]
    decision = _decision(Bulyan(case["f"], selections), rows(case))
    assert decision.selected == tuple(sorted(expected["selected"]))
    assert decision.combination.statistic.count == expected["beta"]  # type: ignore[union-attr]
    np.testing.assert_allclose(combined(decision.combination, rows(case)), expected["value"], rtol=1e-13)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("make", "key"), [(Median, "median"), (TrimmedMean, "trimmed_mean"), (MeanAroundMedian, "meamed")]
)
def test_one_coordinate_at_a_time(name: str, make: Any, key: str) -> None:
    case = CASES[name]
    np.testing.assert_allclose(_value(make(case["f"]), rows(case)), case["expect"][key]["value"], rtol=1e-13)


@pytest.mark.parametrize("name", with_rule("mda"))
def test_mda(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"]["mda"]
    decision = _decision(MinimumDiameter(case["f"]), rows(case))
    assert decision.selected == tuple(expected["indices"])
    assert (
        geometry(rows(case)).squared_NN[np.ix_(decision.selected, decision.selected)].max() == expected["diameter_sq"]
    )
    np.testing.assert_allclose(combined(decision.combination, rows(case)), expected["value"], rtol=1e-13)


@pytest.mark.parametrize("name", with_rule("dnc_all_coords"))
def test_dnc(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"]["dnc_all_coords"]
    decision = DivideAndConquer(case["f"], c=expected["c"]).judge_samples([geometry(rows(case))], uniform(case["n"]))
    assert decision.selected == tuple(expected["keep"])
    np.testing.assert_allclose(decision.scores_N, expected["scores"], rtol=1e-9)
    np.testing.assert_allclose(combined(decision.combination, rows(case)), expected["value"], rtol=1e-13)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_geometric_median(name: str, weighted: bool) -> None:
    case = CASES[name]
    expected = case["expect"]["geomed_weighted_exact" if weighted else "geomed_exact"]
    shares_N = np.array(case["counts"]) / np.sum(case["counts"]) if weighted else uniform(case["n"])
    for rule, tolerance in ((GeometricMedian(), 5e-5), (GeometricMedian(iterations=5000, smoothing=1e-9), 1e-8)):
        decision = rule.judge(geometry(rows(case)), shares_N)
        np.testing.assert_allclose(combined(decision.combination, rows(case)), expected["value"], atol=tolerance)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("key", "start", "iterations", "smoothing"),
    [("weiszfeld_T3_nu0.1_from_zero", "zero", 3, 0.1), ("weiszfeld_T4_nu1e-5_from_mean", "mean", 4, 1e-5)],
)
def test_weiszfeld_steps(name: str, key: str, start: str, iterations: int, smoothing: float) -> None:
    case, expected = CASES[name], CASES[name]["expect"][key]
    counts_N = np.array(expected.get("weights", uniform(case["n"])))
    shares_P = np.append(counts_N / counts_N.sum(), 0)
    points = within_reach(geometry(rows(case)).squared_PP, case["n"], np.inf)
    weights_P = np.append(np.zeros(case["n"]), 1) if start == "zero" else shares_P
    for _ in range(iterations):
        weights_P = weiszfeld_step(np.sqrt(points.squared_distances(weights_P)), shares_P, smoothing)
    np.testing.assert_allclose(weights_P[:-1] @ rows(case), expected["value"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("iterations", [1, 3])
def test_centered_clipping_from_the_origin(name: str, iterations: int) -> None:
    case = CASES[name]
    expected = case["expect"][f"centred_clip_tau1_L{iterations}_from_zero"]["value"]
    np.testing.assert_allclose(_value(CenteredClipping(1.0, iterations), rows(case)), expected, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_centered_clipping_from_a_reference(name: str) -> None:
    case = CASES[name]
    start_D = rows(case)[0]
    combination = _decision(CenteredClipping(2.0, 2), rows(case), start_D).combination
    expected = case["expect"]["centred_clip_tau2_L2_from_row0"]["value"]
    np.testing.assert_allclose(combined(combination, np.vstack([rows(case), start_D])), expected, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_fltrust(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"]["fltrust"]
    decision = _decision(FLTrust(), rows(case), np.array(expected["server"]))
    np.testing.assert_allclose(1 - decision.scores_N, expected["trust"], atol=1e-14)
    np.testing.assert_allclose(combined(decision.combination, rows(case)), expected["value"], rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_foolsgold(name: str) -> None:
    case, expected = CASES[name], np.array(CASES[name]["expect"]["foolsgold"]["weights"])
    decision = _decision(FoolsGold(), rows(case))
    np.testing.assert_allclose(1 - decision.scores_N, expected, atol=1e-9)
    np.testing.assert_allclose(decision.weights_N, expected / expected.sum(), atol=1e-9)


@pytest.mark.parametrize("name", with_rule("nnm"))
def test_nearest_neighbour_mixing(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"]["nnm"]
    seen = geometry(rows(case))
    mix_NN = NearestNeighbourMixing(case["f"]).mix(case["n"], seen, 0)
    mixed_ND = mix_NN @ rows(case)
    np.testing.assert_allclose(mixed_ND, expected["rows"], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(mixed(seen, mix_NN).squared_PP, geometry(mixed_ND).squared_PP, atol=1e-11)
    for rule, key in ((Median(), "then_median"), (TrimmedMean(case["f"]), "then_trimmed_mean")):
        np.testing.assert_allclose(_value(rule, mixed_ND), expected[key], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(mixed_ND.mean(axis=0), expected["then_mean"], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_bucketing(name: str) -> None:
    case, expected = CASES[name], CASES[name]["expect"]["bucketing_s2"]
    mix_MN = in_buckets(np.array(expected["perm"]), 2)
    np.testing.assert_allclose(mix_MN @ rows(case), expected["rows"], rtol=1e-13)


def test_a_huge_row() -> None:
    case, expected = SPECIAL["huge_row"], SPECIAL["huge_row"]["expect"]
    updates_ND = rows(case)
    assert _decision(Krum(1), updates_ND).selected == (expected["krum_index"],)
    assert _decision(MultiKrum(1, 4), updates_ND).selected == tuple(sorted(expected["multi_krum_m4"]))
    assert _decision(MinimumDiameter(1), updates_ND).selected == tuple(expected["mda_indices"])
    np.testing.assert_array_equal(_value(Median(1), updates_ND), expected["median"])
    np.testing.assert_allclose(_value(TrimmedMean(1), updates_ND), expected["trimmed_mean_k1"], rtol=1e-13)


def test_what_is_left_of_updates_that_are_not_finite() -> None:
    case, expected = SPECIAL["nonfinite"], SPECIAL["nonfinite"]["expect"]
    kept = [index for index in range(len(case["rows"])) if index not in case["dropped"]]
    updates_ND, f = rows(case)[kept], case["f_after"]
    assert kept[_decision(expecting(Krum(case["f"]), f), updates_ND).selected[0]] == expected["krum_index_in_original"]
    np.testing.assert_array_equal(_value(expecting(Median(case["f"]), f), updates_ND), expected["median"])
    trimmed_D = _value(expecting(TrimmedMean(case["f"]), f), updates_ND)
    np.testing.assert_allclose(trimmed_D, expected["trimmed_mean_k0"], rtol=1e-13)


def test_a_clique_of_as_many_as_are_expected_to_lie_does_not_win() -> None:
    case, expected = SPECIAL["clique_below_limit"], SPECIAL["clique_below_limit"]["expect"]
    decision = _decision(Krum(case["f"]), rows(case))
    assert decision.selected == (expected["krum_index"],)
    np.testing.assert_array_equal(decision.scores_N, expected["krum_scores"])


def test_updates_that_are_all_equal() -> None:
    case, expected = SPECIAL["all_equal"], SPECIAL["all_equal"]["expect"]
    updates_ND, f = rows(case), case["f"]
    assert _decision(Krum(f), updates_ND).selected == (expected["krum_index"],)
    for rule, key in (
        (Median(f), "median"),
        (TrimmedMean(f), "trimmed_mean_k1"),
        (GeometricMedian(f), "geomed"),
        (MinimumDiameter(f), "mda_value"),
        (CenteredClipping(10.0), "centred_clip"),
        (FoolsGold(), "median"),
        (MultiKrum(f), "median"),
    ):
        np.testing.assert_allclose(_value(rule, updates_ND), expected[key], rtol=1e-15)


def test_values_as_close_on_either_side_of_the_median() -> None:
    case = SPECIAL["meamed_tie"]
    np.testing.assert_array_equal(_value(MeanAroundMedian(case["f"]), rows(case)), case["expect"]["meamed"])


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("too_few_krum_n6_f2", Krum),
        ("too_few_trimmed_mean_n4_f2", TrimmedMean),
        ("too_few_median_n0_f0", Median),
    ],
)
def test_too_few(name: str, make: Any) -> None:
    with pytest.raises(TooFewUpdates, match=f"got {SPECIAL[name]['n']}"):
        make(SPECIAL[name]["f"]).require(SPECIAL[name]["n"])
