"""Inputs that other systems got wrong, by their public trackers; each with the right answer."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.aggregators import rule
from foedus.errors import InvalidUpdate, TooFewExamples, TooFewUpdates
from robust_vectors import VECTORS


@pytest.mark.parametrize("seed", range(20))
def test_cancellation_elects_no_attacker(seed: int) -> None:
    """‖x‖² + ‖y‖² - 2⟨x, y⟩ in float32 does, at weights around 100."""
    rng = np.random.default_rng(seed)
    weights_D = rng.normal(0, 100, 2000)
    honest_ND = weights_D + rng.normal(0, 1e-3, (7, 2000))
    attack_ND = weights_D + 3e-2 + rng.normal(0, 1e-3, (2, 2000))
    updates_ND = np.vstack([attack_ND, honest_ND]).astype(np.float32)
    assert rule("krum", f=2)(updates_ND).selected[0] >= 2
    assert min(rule("multi-krum", f=2)(updates_ND).selected) >= 2


@pytest.mark.parametrize(("name", "parameters"), [("krum", {"f": 5}), ("multi-krum", {"f": 5}), ("bulyan", {"f": 1})])
def test_too_few_updates_are_refused_and_nothing_is_clamped(name: str, parameters: dict[str, int]) -> None:
    with pytest.raises(TooFewUpdates):
        rule(name, **parameters)(np.ones((3, 4)))


def test_a_trimmed_mean_trims() -> None:
    """A fraction of .2 of 4, rounded down, trims nobody and gives 250001."""
    updates_ND = np.array([[1.0], [2.0], [3.0], [1e6]])
    np.testing.assert_array_equal(rule("trimmed-mean", f=1)(updates_ND).update_D, [2.5])


def test_a_median_of_the_others_where_one_site_sends_nan() -> None:
    updates_ND = np.array([[1.0, 1.0], [2.0, np.nan], [3.0, 3.0], [5.0, 5.0]])
    np.testing.assert_array_equal(rule("median")(updates_ND).update_D, [3, 3])


def test_absurd_counts() -> None:
    updates_ND = np.array([[0.0], [0.0], [100.0]])
    bounded = rule("mean", max_examples=100)(updates_ND, [100, 100, 10**12])
    np.testing.assert_allclose(bounded.update_D, [100 / 3])
    with pytest.raises(InvalidUpdate, match="update 1 claims to rest on -9 examples"):
        rule("mean")(updates_ND, [1, -9, 1])
    with pytest.raises(TooFewExamples):
        rule("mean")(updates_ND, [0, 0, 0])


def test_nothing_is_broadcast() -> None:
    with pytest.raises(InvalidUpdate, match="do not have one shape"):
        rule("mean")([np.ones(2), np.ones(1), np.ones(2)])


def test_many_float16_ones() -> None:
    assert rule("mean")(np.ones((4096, 1), np.float16)).update_D == 1.0


def test_float16_and_a_count_beyond_it() -> None:
    updates_ND = np.array([[2.0], [4.0]], np.float16)
    np.testing.assert_array_equal(rule("mean")(updates_ND, [70000, 70000]).update_D, [3])


def test_integers_stay_integers() -> None:
    mean_D = rule("mean")(np.array([[7], [9]], np.int64)).update_D
    assert (mean_D.tolist(), mean_D.dtype) == ([8], np.int64)


def _bulyan_picks(updates_ND: np.ndarray, f: int) -> set[int]:
    return set(rule("bulyan", f=f, selections="n-2f")(updates_ND).selected)


def test_bulyan_chooses_again_after_each_choice() -> None:
    """One Multi-Krum of as many gives other updates nearly always."""
    known = VECTORS["bulyan_oneshot_selection_differs"]
    n, f, rng = known["n"], known["f"], np.random.default_rng(0)
    different = 0
    for _ in range(known["trials"]):
        updates_ND = rng.standard_normal((n, known["d"])).astype(np.float32)
        scores_N = rule("multi-krum", f=f)(updates_ND).scores
        assert scores_N is not None
        one_shot = set(np.argsort(scores_N, kind="stable")[: n - 2 * f].tolist())
        different += _bulyan_picks(updates_ND, f) != one_shot
    # The exact figure hangs on the draws; by far most of them differ.
    assert abs(different / known["trials"] - known["different"] / known["trials"]) < 0.05


@pytest.mark.parametrize("seed", range(20))
def test_identical_attackers_under_bulyan(seed: int) -> None:
    """With the published n - 2f choices the last one falls on one of f identical attackers."""
    updates_ND = np.random.default_rng(seed).standard_normal((11, 50)).astype(np.float32)
    updates_ND[9:] = 4 * updates_ND[:9].mean(axis=0) + 3
    assert not {9, 10} & set(rule("bulyan", f=2)(updates_ND).selected)


def test_rows_scaled_by_ten_thousand_cost_the_others_nothing() -> None:
    """Centring on the mean would let two of them choose the winner."""
    rng = np.random.default_rng(0)
    updates_ND = (1 + 1e-4 * rng.standard_normal((9, 3000))).astype(np.float32)
    exact_NN = ((updates_ND[:7, None].astype(np.float64) - updates_ND[None, :7]) ** 2).sum(axis=2)
    np.fill_diagonal(exact_NN, np.inf)
    updates_ND[7:] *= 1e4
    right = int(np.argmin(np.sort(exact_NN, axis=1)[:, :5].sum(axis=1)))
    assert rule("krum", f=2)(updates_ND).selected == (right,)


def test_each_update_keeps_its_own_weight_and_row() -> None:
    """Kept in a set, equal counts become one; sorted by count, rows are trimmed by their owners' size."""
    np.testing.assert_array_equal(rule("mean")(np.array([[1.0], [2.0], [6.0]]), [5, 5, 5]).update_D, [3])
    updates_ND = np.array([[9.0], [1.0], [2.0], [3.0], [-7.0]])
    for counts in ([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]):
        np.testing.assert_array_equal(rule("trimmed-mean", f=1)(updates_ND, counts).update_D, [2])
