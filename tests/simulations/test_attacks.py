"""Every attack against known answers, an independent computation, and what the paper says it achieves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from foedus.errors import ConfigError
from foedus.simulations.attacks import Attack, attack, label_flip, weight_inflation
from foedus.simulations.attacks.collusion import collusion
from foedus.simulations.attacks.farthest import min_max, min_sum, perturbation
from foedus.simulations.attacks.knowledge import Knowledge
from foedus.simulations.attacks.little import a_little_is_enough, z_max
from foedus.simulations.attacks.lookup import FORMULAS
from foedus.simulations.attacks.mimic import mimic
from foedus.simulations.attacks.opposing import inner_product_manipulation, sign_flip
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

VECTORS = json.loads((Path(__file__).parents[1] / "aggregators" / "robust.json").read_text())
DIRECTIONS = ("unit", "std", "sign")

honest_updates = arrays(
    np.float64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.floats(-1e3, 1e3, width=32)
)


def knowing(honest_HD: Any, num_attackers: int = 1, **known: Any) -> Knowledge:
    honest = np.asarray(honest_HD, np.float64)
    return Knowledge(honest, num_attackers, len(honest) + num_attackers, **known)


# Known answers


FORMULA_OF: dict[str, Callable[[Knowledge], Any]] = {
    "sign_flip_of_mean": sign_flip,
    "alie_minus_z1.5_ddof0": partial(a_little_is_enough, z=1.5, ddof=0),
    "alie_minus_z1.5_ddof1": partial(a_little_is_enough, z=1.5, ddof=1),
    # Ten times the mean, which pulls the other way, is the replacement by one of ten sites.
    "mean_scaled_by_10": partial(inner_product_manipulation, epsilon=-10.0),
}


@pytest.mark.parametrize("case", range(len(VECTORS["attacks"])))
@pytest.mark.parametrize("name", FORMULA_OF)
def test_known_answers(case: int, name: str) -> None:
    vector = VECTORS["attacks"][case]
    got_D = FORMULA_OF[name](knowing(vector["honest"]))
    np.testing.assert_allclose(got_D, vector["expect"][name], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("case", range(len(VECTORS["attacks"])))
@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "2"])
def test_known_inner_product_manipulations(case: int, epsilon: str) -> None:
    vector = VECTORS["attacks"][case]
    got_AD = attack("ipm", epsilon=float(epsilon))(vector["honest"], 3, 20, seed=0)
    assert got_AD.dtype == np.float32
    np.testing.assert_allclose(got_AD, np.tile(vector["expect"]["ipm"][epsilon], (3, 1)), rtol=1e-7)


@pytest.mark.parametrize("case", range(len(VECTORS["attacks"])))
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("prefix", "formula"), [("min_max", min_max), ("min_sum", min_sum)])
def test_known_farthest_rows(case: int, direction: Any, prefix: str, formula: Callable[..., Any]) -> None:
    vector = VECTORS["attacks"][case]
    known, expected = knowing(vector["honest"]), vector["expect"][f"{prefix}_{direction}"]
    got_D, p_D = formula(known, direction=direction), perturbation(known, direction)
    np.testing.assert_allclose(got_D, expected["value"], rtol=1e-12)
    assert np.linalg.norm(got_D - known.mean) / np.linalg.norm(p_D) == pytest.approx(expected["gamma"], rel=1e-12)


@pytest.mark.parametrize("row", VECTORS["alie_z_max"], ids=lambda row: f"n{row['n']}-f{row['f']}")
def test_known_z_max(row: dict[str, Any]) -> None:
    assert row["n"] // 2 + 1 - row["f"] == row["s"]
    assert z_max(row["n"], row["f"]) == pytest.approx(row["z_max"], rel=1e-12, abs=1e-15)


def test_z_max_wins_over_a_majority_and_no_more() -> None:
    for n, f in [(25, 5), (50, 24), (100, 20)]:
        beyond = (n - f) * (1 - NormalDist().cdf(z_max(n, f)))
        assert beyond + f == pytest.approx(n // 2 + 1)


@pytest.mark.parametrize(("n", "f"), [(2, 1), (10, 6), (3, -1)])
def test_z_max_needs_an_honest_majority(n: int, f: int) -> None:
    with pytest.raises(ConfigError, match=f"{f} attackers among {n}"):
        z_max(n, f)


# Against an independent computation


def bisected(holds: Callable[[float], bool]) -> float:
    """The largest γ for which ``holds``, by doubling and halving."""
    low, high = 0.0, 1.0
    while holds(high):
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("seed", range(5))
def test_the_closed_forms_are_what_the_search_finds(direction: Any, seed: int) -> None:
    honest_HD = np.random.default_rng(seed).normal(0.3, 1.0, (6, 5))
    known = knowing(honest_HD)
    p_D = perturbation(known, direction)
    squared_HH = ((honest_HD[:, None] - honest_HD[None]) ** 2).sum(axis=2)

    def to_honest(gamma: float) -> Any:
        return ((honest_HD.mean(axis=0) + gamma * p_D - honest_HD) ** 2).sum(axis=1)

    farthest = bisected(lambda gamma: to_honest(gamma).max() <= squared_HH.max())
    sums = bisected(lambda gamma: to_honest(gamma).sum() <= squared_HH.sum(axis=1).max())
    np.testing.assert_allclose(min_max(known, direction=direction), known.mean + farthest * p_D, rtol=1e-9)
    np.testing.assert_allclose(min_sum(known, direction=direction), known.mean + sums * p_D, rtol=1e-9)


@given(honest_updates, st.sampled_from(DIRECTIONS))
def test_the_farthest_rows_stay_within_their_bounds(honest_HD: Any, direction: Any) -> None:
    known = knowing(honest_HD)
    squared_HH = ((honest_HD[:, None] - honest_HD[None]) ** 2).sum(axis=2)
    slack = 1e-9 * max(1.0, (honest_HD**2).max())
    to_max_H = ((min_max(known, direction=direction) - honest_HD) ** 2).sum(axis=1)
    to_sum_H = ((min_sum(known, direction=direction) - honest_HD) ** 2).sum(axis=1)
    assert to_max_H.max() <= squared_HH.max() + slack
    assert to_sum_H.sum() <= squared_HH.sum(axis=1).max() + 10 * slack


def test_farthest_rows_know_their_directions() -> None:
    with pytest.raises(ConfigError, match="'sideways'") as caught:
        attack("min-max", direction="sideways")([[1.0]], 1, 2, 0)
    assert "unit, std or sign" in caught.value.hint


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("formula", [min_max, min_sum])
def test_among_equal_rows_there_is_no_room(formula: Callable[..., Any], direction: str) -> None:
    for seed in range(20):  # the mean of equal rows differs from them by rounding, now and then
        row_D = np.random.default_rng(seed).standard_normal(5) / 3
        sent_D = formula(knowing(np.tile(row_D, (7, 1)), 3), direction=direction)
        np.testing.assert_allclose(sent_D, row_D, rtol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_mimic_by_the_eigenvectors_of_the_covariance(seed: int) -> None:
    honest_HD = np.random.default_rng(seed).normal(size=(7, 4)) * [3.0, 1.0, 1.0, 0.2] + [0.0, 2.0, 0.0, 0.0]
    centred_HD = honest_HD - honest_HD.mean(axis=0)
    top_D = np.linalg.eigh(centred_HD.T @ centred_HD)[1][:, -1]
    expected_D = honest_HD[np.argmax(np.abs(honest_HD @ top_D))]
    np.testing.assert_array_equal(mimic(knowing(honest_HD)), expected_D)


def test_mimic_copies_the_site_that_is_most_of_its_own() -> None:
    honest_HD = [[0.0, 1.0], [0.1, 0.9], [-0.2, 1.1], [5.0, 1.0]]
    np.testing.assert_array_equal(mimic(knowing(honest_HD)), [5.0, 1.0])


@given(honest_updates)
def test_mimic_sends_an_honest_row(honest_HD: Any) -> None:
    assert any(np.array_equal(mimic(knowing(honest_HD)), row_D) for row_D in honest_HD)


def krum(rows_ND: Any, f: int) -> int:
    """The row that Krum selects, from its definition."""
    scores = []
    for i in range(len(rows_ND)):
        others = sorted(((rows_ND[i] - rows_ND[j]) ** 2).sum() for j in range(len(rows_ND)) if j != i)
        scores.append(sum(others[: len(rows_ND) - f - 2]))
    return int(np.argmin(scores))


@pytest.mark.parametrize(("n", "f"), [(5, 1), (11, 2), (20, 4), (20, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_colluding_attackers_are_who_krum_selects(n: int, f: int, seed: int) -> None:
    honest_HD = np.random.default_rng(seed).normal(0.2, 1.0, (n - f, 30))
    known = Knowledge(honest_HD, f, n)
    row_D = collusion(known)
    assert krum(np.concatenate([honest_HD, np.tile(row_D, (f, 1))]), f) >= n - f
    assert row_D @ known.mean < 0
    # Twice as far is too far: the paper halves from where Krum still sees through it.
    twice = np.concatenate([honest_HD, np.tile(2 * row_D, (f, 1))])
    first = float(np.linalg.norm(honest_HD, axis=1).max()) / math.sqrt(30)
    assert krum(twice, f) < n - f or np.abs(2 * row_D).max() > first


def test_collusion_gives_up_where_no_step_is_small_enough() -> None:
    honest_HD = np.full((4, 3), 1.0) + 1e-9 * np.arange(12).reshape(4, 3)
    assert np.abs(collusion(knowing(honest_HD))).max() <= 1e-5


@pytest.mark.parametrize(("num_honest", "f", "n"), [(3, 1, 4), (4, 1, 6)])
def test_collusion_needs_the_conditions_of_krum_and_full_knowledge(num_honest: int, f: int, n: int) -> None:
    with pytest.raises(ConfigError, match=f"{f} colluding attackers among {n} updates know {num_honest}"):
        attack("collusion")(np.ones((num_honest, 2)), f, n, 0)


# What the others are to achieve


def test_sign_flip_prefers_the_attackers_own_update() -> None:
    sent_AD = attack("sign-flip")([[1.0, 2.0]], 2, 5, 0, own_D=[3.0, -4.0])
    np.testing.assert_array_equal(sent_AD, [[-3.0, 4.0]] * 2)


@given(st.integers(1, 5), st.integers(1, 4), st.floats(0.1, 3.0))
def test_a_scaled_backdoor_leaves_the_attackers_target_in_the_model(num_honest: int, f: int, eta: float) -> None:
    honest_HD = np.random.default_rng(0).normal(size=(num_honest, 4))
    target_D, n = np.array([1.0, -2.0, 0.5, 4.0]), num_honest + f
    sent_AD = attack("scaled-backdoor", learning_rate=eta)(honest_HD, f, n, 0, own_D=target_D)
    step_D = eta * np.concatenate([honest_HD, sent_AD]).mean(axis=0)
    np.testing.assert_allclose(step_D - eta * honest_HD.sum(axis=0) / n, target_D, rtol=1e-5, atol=1e-5)


def test_a_scaled_backdoor_needs_poison_and_a_rate() -> None:
    with pytest.raises(ConfigError, match="trained themselves"):
        attack("scaled-backdoor")([[1.0]], 1, 2, 0)
    with pytest.raises(ConfigError, match="learning rate is 0"):
        attack("scaled-backdoor", learning_rate=0.0)([[1.0]], 1, 2, 0, own_D=[1.0])


def test_gaussian_rows_are_as_wide_as_asked_and_differ() -> None:
    send = attack("gaussian", sigma=3.0)
    sent_AD = send(np.zeros((2, 20_000)), 2, 6, seed=1)
    np.testing.assert_allclose(sent_AD.std(axis=1), 3.0, rtol=0.03)
    assert abs(np.corrcoef(sent_AD)[0, 1]) < 0.05
    np.testing.assert_array_equal(send(np.zeros((2, 20_000)), 2, 6, seed=1), sent_AD)
    assert not np.array_equal(send(np.zeros((2, 20_000)), 2, 6, seed=2), sent_AD)
    with pytest.raises(ConfigError, match="sigma is -1"):
        attack("gaussian", sigma=-1.0)([[1.0]], 1, 2, 0)


def test_free_riders_send_nothing_or_what_the_model_did_last() -> None:
    honest_HD, last_D = np.ones((3, 4)), np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(attack("free-rider")(honest_HD, 2, 5, 0, last_D=last_D), np.zeros((2, 4)))
    repeating = attack("free-rider", repeat=True)
    np.testing.assert_array_equal(repeating(honest_HD, 2, 5, 0, last_D=last_D), [last_D] * 2)
    np.testing.assert_array_equal(repeating(honest_HD, 2, 5, 0), np.zeros((2, 4)))
    disguised_AD = attack("free-rider", repeat=True, noise=1e-3)(honest_HD, 2, 5, 0, last_D=last_D)
    assert not np.array_equal(disguised_AD[0], disguised_AD[1])
    np.testing.assert_allclose(disguised_AD, [last_D] * 2, atol=0.01)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_hides_among_honest_ones(value: float) -> None:
    honest_HD = np.random.default_rng(0).normal(size=(3, 50))
    (sent_D,) = attack("non-finite", value=value)(honest_HD, 1, 4, seed=5)
    (bad,) = np.flatnonzero(~np.isfinite(sent_D))
    np.testing.assert_equal(sent_D[bad], np.float32(value))
    mean_D = honest_HD.mean(axis=0)
    mean_D[bad] = value
    np.testing.assert_array_equal(sent_D, mean_D.astype(np.float32))


def test_huge_values_are_finite_and_their_squares_are_not() -> None:
    (sent_D,) = attack("huge")([[1.0, -1.0, 0.0]], 1, 2, 0)
    np.testing.assert_array_equal(np.sign(sent_D), [-1, 1, 1])
    assert np.isfinite(sent_D).all()
    with np.errstate(over="ignore"):
        assert np.isinf(sent_D * sent_D).all()


def test_weight_inflation_claims_a_trillion_examples() -> None:
    counts = [10, 20, 30]
    np.testing.assert_array_equal(weight_inflation(counts, [2]), [10, 20, 10**12])
    np.testing.assert_array_equal(weight_inflation(counts, [0, 1], claimed=7), [7, 7, 30])
    assert counts == [10, 20, 30]


@given(st.integers(1, 12).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(0, c - 1)))))
def test_flipping_labels_twice_gives_them_back(drawn: tuple[int, list[int]]) -> None:
    num_classes, labels = drawn
    flipped_N = label_flip(labels, num_classes)
    np.testing.assert_array_equal(flipped_N, [num_classes - 1 - label for label in labels])
    np.testing.assert_array_equal(label_flip(flipped_N, num_classes), labels)


@pytest.mark.parametrize("label", [-1, 10, 2.5])
def test_only_classes_can_be_flipped(label: float) -> None:
    with pytest.raises(ConfigError, match=f"a label is {label}, expected a whole number from 0 to 9"):
        label_flip([0, label], 10)


# By name


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_every_attack_has_the_one_shape(name: str) -> None:
    honest_HD = np.random.default_rng(3).normal(size=(9, 6)).astype(np.float32)
    before = honest_HD.copy()
    send = attack(name)
    assert isinstance(send, Attack)
    sent_AD = send(honest_HD, 2, 11, seed=4, own_D=honest_HD[0], last_D=honest_HD[1])
    assert sent_AD.shape == (2, 6)
    assert sent_AD.dtype == np.float32
    np.testing.assert_array_equal(send(honest_HD, 2, 11, seed=4, own_D=honest_HD[0], last_D=honest_HD[1]), sent_AD)
    np.testing.assert_array_equal(honest_HD, before)


@pytest.mark.parametrize("name", sorted(FORMULAS.keys() - {"collusion", "huge", "gaussian", "non-finite"}))
def test_identical_honest_updates_leave_no_nan_behind(name: str) -> None:
    sent_AD = attack(name)(np.full((1, 3), 2.0), 1, 4, 0, own_D=np.ones(3))
    assert np.isfinite(sent_AD).all()


def test_what_float32_cannot_hold_becomes_infinite() -> None:
    assert np.isinf(attack("ipm", epsilon=1e30)(np.full((2, 2), 1e20), 1, 3, 0)).all()


def test_a_wrong_name_or_parameter_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no attack 'min-mix'") as caught:
        attack("min-mix")
    assert caught.value.hint == "did you mean min-max?"
    with pytest.raises(ConfigError, match="attack 'ipm'") as caught:
        attack("ipm", epsilom=1)
    assert caught.value.hint == "did you mean epsilon?"


@pytest.mark.parametrize(
    ("honest", "num_attackers", "n", "known", "message"),
    [
        (np.ones(3), 1, 4, {}, r"shape \(3,\)"),
        (np.ones((0, 3)), 1, 4, {}, r"shape \(0, 3\)"),
        (np.ones((2, 3)), 0, 4, {}, "0 attackers among 4 updates, expected 1 to 3"),
        (np.ones((2, 3)), 4, 4, {}, "4 attackers among 4 updates"),
        (np.ones((2, 3)), 1, 4, {"own_D": np.ones(1)}, r"own_D has shape \(1,\), expected \(3,\)"),
        (np.ones((2, 3)), 1, 4, {"last_D": np.ones((1, 3))}, r"last_D has shape \(1, 3\)"),
    ],
)
def test_knowledge_that_does_not_fit_is_refused(honest, num_attackers, n, known, message) -> None:
    with pytest.raises(ConfigError, match=message):
        attack("ipm")(honest, num_attackers, n, 0, **known)
