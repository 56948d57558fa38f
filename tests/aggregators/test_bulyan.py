from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from by_definition import combined, geometry, uniform
from foedus.aggregators.bulyan import Bulyan
from foedus.aggregators.krum import krum_scores
from foedus.errors import ConfigError, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st
from robust_vectors import VECTORS


def _chosen(updates_ND: np.ndarray, f: int, theta: int) -> list[int]:
    """One after the other by the definition, with exact scores for whole numbers."""
    left, chosen = list(range(len(updates_ND))), []
    for _ in range(theta):
        neighbours = max(1, len(left) - f - 2)
        scores = {
            i: sum(sorted(float(np.sum((updates_ND[i] - updates_ND[j]) ** 2)) for j in left if j != i)[:neighbours])
            for i in left
        }
        best = min(left, key=lambda i: (scores[i], i))
        chosen.append(best)
        left.remove(best)
    return chosen


@given(st.integers(0, 2), st.integers(0, 4), st.sampled_from(["n-2f-2", "n-2f"]), st.integers(0, 2**32))
def test_updates_are_chosen_one_by_one(f: int, more: int, selections: Any, seed: int) -> None:
    n = 4 * f + 3 + more
    updates_ND = np.random.default_rng(seed).integers(-50, 50, (n, 4)).astype(np.float64)
    theta = n - 2 * f - (2 if selections == "n-2f-2" else 0)
    decision = Bulyan(f, selections).judge(geometry(updates_ND), uniform(n))
    assert decision.selected == tuple(sorted(_chosen(updates_ND, f, theta)))
    around_ND = np.sort(updates_ND[list(decision.selected)], axis=0)
    medians_D, count = np.median(around_ND, axis=0), theta - 2 * f
    for value, median, column_N in zip(combined(decision.combination, updates_ND), medians_D, around_ND.T, strict=True):
        nearest = sorted(column_N, key=lambda entry: (abs(entry - median), entry))[:count]
        assert value == pytest.approx(np.mean(nearest), abs=1e-12)


def test_choosing_all_at_once_is_another_rule() -> None:
    expected = VECTORS["bulyan_oneshot_selection_differs"]
    n, f, theta = expected["n"], expected["f"], expected["n"] - 2 * expected["f"]
    drawn = random.Random(0)
    different = 0
    for _ in range(expected["trials"]):
        updates_ND = np.array([[drawn.gauss(0, 1) for _ in range(expected["d"])] for _ in range(n)])
        seen = geometry(updates_ND)
        one_by_one = Bulyan(f, "n-2f").judge(seen, uniform(n)).selected
        at_once = np.argsort(krum_scores(seen.squared_NN, n - f - 2), kind="stable")[:theta]
        different += set(one_by_one) != set(at_once.tolist())
    assert different > 0.8 * expected["trials"]


def test_as_many_equal_liars_as_expected_are_never_chosen_by_default() -> None:
    published = []
    for seed in range(50):
        updates_ND = np.random.default_rng(seed).standard_normal((11, 5))
        updates_ND[9:] = 3.0
        assert Bulyan(2).judge(geometry(updates_ND), uniform(11)).selected[-1] < 9
        published.append(Bulyan(2, "n-2f").judge(geometry(updates_ND), uniform(11)).selected[-1] >= 9)
    assert all(published)  # the last of seven choices is theirs: both score 0


@pytest.mark.parametrize("selections", ["n-2f-2", "n-2f"])
def test_equal_updates_and_the_fewest(selections: Any) -> None:
    decision = Bulyan(1, selections).judge(geometry(np.ones((7, 2))), uniform(7))
    assert decision.selected == tuple(range(3 if selections == "n-2f-2" else 5))
    np.testing.assert_array_equal(combined(decision.combination, np.ones((7, 2))), [1, 1])
    Bulyan(0, selections).judge(geometry(np.eye(3)), uniform(3))
    with pytest.raises(TooFewUpdates, match=r"bulyan with f = 1 needs n >= 4f \+ 3: at least 7 updates, got 6"):
        Bulyan(1, selections).judge(geometry(np.ones((6, 2))), uniform(6))


def test_an_unknown_number_of_selections_is_refused() -> None:
    with pytest.raises(ConfigError, match="selections is 'n-f', expected 'n-2f-2' or 'n-2f'"):
        Bulyan(1, "n-f")  # type: ignore[arg-type]
