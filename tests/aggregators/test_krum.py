from __future__ import annotations

import numpy as np
import pytest
from by_definition import combined, geometry, uniform
from foedus.aggregators.krum import Krum, MultiKrum, krum_scores
from foedus.errors import ConfigError, TooFewExamples, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def _scores(updates_ND: np.ndarray, f: int) -> list[float]:
    """By the definition, with the neighbours of each found among the others."""
    n = len(updates_ND)
    return [
        sum(sorted(float(np.sum((updates_ND[i] - updates_ND[j]) ** 2)) for j in range(n) if j != i)[: n - f - 2])
        for i in range(n)
    ]


@given(st.integers(0, 3), st.integers(0, 6), st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_scores_are_those_of_the_definition(f: int, more: int, d: int, random: object) -> None:
    n = 2 * f + 3 + more
    updates_ND = np.random.default_rng(random.getrandbits(32)).standard_normal((n, d))  # type: ignore[attr-defined]
    expected_N = _scores(updates_ND, f)
    one = Krum(f).judge(geometry(updates_ND), uniform(n))
    np.testing.assert_allclose(one.scores_N, expected_N, rtol=1e-12)  # type: ignore[arg-type]
    assert one.selected == (int(np.argmin(expected_N)),)
    for m in range(1, n - f - 1):
        several = MultiKrum(f, m).judge(geometry(updates_ND), uniform(n))
        chosen = sorted(np.argsort(expected_N)[:m].tolist())
        assert several.selected == tuple(chosen)
        np.testing.assert_allclose(combined(several.combination, updates_ND), updates_ND[chosen].mean(axis=0))


@given(st.data())
def test_neither_the_order_nor_the_place_of_the_updates_matters(data: st.DataObject) -> None:
    # Whole numbers, so that moving them is exact; scores that tie are decided by index, which an order changes.
    n = data.draw(st.integers(5, 9))
    updates_ND = data.draw(hnp.arrays(np.float64, (n, 3), elements=st.integers(-1000, 1000)))
    order = np.array(data.draw(st.permutations(range(n))))
    shift_D = np.array(data.draw(st.tuples(*[st.integers(-(10**6), 10**6)] * 3)))
    before = MultiKrum(1, 2).judge(geometry(updates_ND), uniform(n))
    moved = MultiKrum(1, 2).judge(geometry(updates_ND + shift_D), uniform(n))
    assert moved.selected == before.selected
    after = MultiKrum(1, 2).judge(geometry(updates_ND[order]), uniform(n))
    np.testing.assert_array_equal(after.scores_N, before.scores_N[order])  # type: ignore[index]
    if len(set(before.scores_N.tolist())) == n:  # type: ignore[union-attr]
        assert sorted(order[list(after.selected)]) == list(before.selected)


def test_a_neighbour_that_seems_nearer_than_the_row_itself_is_still_a_neighbour() -> None:
    np.testing.assert_array_equal(krum_scores(np.array([[0.0, 0, 4], [0, 0, 9], [4, 9, 0]]), 1), [0, 0, 4])


def test_equal_scores_go_to_the_lowest_index() -> None:
    updates_ND = np.ones((7, 2))
    assert Krum(1).judge(geometry(updates_ND), uniform(7)).selected == (0,)
    assert MultiKrum(1, 3).judge(geometry(updates_ND), uniform(7)).selected == (0, 1, 2)


def test_an_infinite_distance_is_far_and_nothing_else() -> None:
    seen = geometry(np.array([[0.0], [1], [3], [7], [0]]))
    seen.squared_PP[4, :4] = seen.squared_PP[:4, 4] = np.inf
    decision = Krum(1).judge(seen, uniform(5))
    np.testing.assert_array_equal(decision.scores_N, [10, 5, 13, 52, np.inf])  # type: ignore[arg-type]
    assert decision.selected == (1,)


def test_as_many_equal_updates_as_krum_has_neighbours_and_one_win() -> None:
    honest_ND = np.random.default_rng(0).standard_normal((5, 4))
    updates_ND = np.vstack([honest_ND, np.full((6, 4), 9.0)])  # n = 11, f = 4: six score 0
    assert Krum(4).judge(geometry(updates_ND), uniform(11)).selected == (5,)


def test_the_chosen_are_averaged_by_their_shares() -> None:
    updates_ND = np.array([[0.0], [1], [2], [100], [3]])
    shares_N = np.array([0.1, 0.2, 0.0, 0.6, 0.1])
    decision = MultiKrum(1, 2).judge(geometry(updates_ND), shares_N)
    assert decision.selected == (1,)  # 1 and 2 have the lowest scores, 2 has no share
    np.testing.assert_array_equal(decision.weights_N, [0, 1, 0, 0, 0])  # type: ignore[arg-type]


def test_chosen_updates_on_no_example_have_no_mean() -> None:
    updates_ND = np.array([[0.0], [1], [2], [100], [3]])
    with pytest.raises(TooFewExamples, match="the 2 updates that multi-krum trusts most rest on no example"):
        MultiKrum(1, 2).judge(geometry(updates_ND), np.array([0, 0, 0, 1.0, 0]))


def test_a_liar_without_examples_does_not_take_the_only_place() -> None:
    updates_ND = np.array([[0.0], [2], [5], [9], [1]])  # the last lies in the middle and claims no example
    decision = MultiKrum(1, 1).judge(geometry(updates_ND), np.array([0.25, 0.25, 0.25, 0.25, 0]))
    np.testing.assert_array_equal(decision.scores_N, [5, 5, 25, 65, 2])  # type: ignore[arg-type]
    assert decision.selected == (0,)


def test_what_the_theorem_does_not_cover_is_refused() -> None:
    with pytest.raises(TooFewUpdates, match=r"krum with f = 5 needs n >= 2f \+ 3: at least 13 updates, got 3"):
        Krum(5).judge(geometry(np.ones((3, 1))), uniform(3))
    with pytest.raises(TooFewUpdates, match="m <= n - f - 2: at least 8 updates, got 7"):
        MultiKrum(1, 5).require(7)
    MultiKrum(1, 5).require(8)
    Krum(0).require(3)
    with pytest.raises(ConfigError, match="m is 0, expected a whole number from 1 on"):
        MultiKrum(1, 0)
    with pytest.raises(ConfigError, match="f is -1"):
        Krum(-1)
    with pytest.raises(ConfigError, match="f is True"):
        MultiKrum(True)


def test_an_attacker_near_honest_updates_that_nearly_coincide_is_never_chosen() -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        base_D = 100 * generator.standard_normal(50)
        updates_ND = (base_D + 1e-3 * generator.standard_normal((9, 50))).astype(np.float32)
        updates_ND[7:] += np.float32(3e-2)
        assert Krum(2).judge(geometry(updates_ND), uniform(9)).selected[0] < 7
