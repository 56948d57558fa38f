"""A rule in use: shares, bounds, what is refused, what comes before the rule and how it is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from foedus.aggregators import Aggregate, rule
from foedus.aggregators.aggregator import Aggregator
from foedus.aggregators.decision import Coordinatewise, Decision, WeightedSum
from foedus.aggregators.mean import Mean
from foedus.aggregators.mixing import Bucketing
from foedus.aggregators.rows import ArrayRows
from foedus.errors import ConfigError, InvalidUpdate, TooFewExamples, TooFewUpdates
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

COUNTS = st.lists(st.integers(0, 10**9), min_size=1, max_size=30).filter(any)
NAMES_WITH_F = ["krum", "multi-krum", "bulyan", "trimmed-mean", "meamed", "mda", "dnc"]
NAMES = [*NAMES_WITH_F, "median", "geometric-median", "centered-clipping"]


def _rule(name: str, f: int, **parameters: object) -> Aggregator:
    if name == "centered-clipping":
        parameters.setdefault("clip", 10.0)
    return rule(name, f=f, **parameters)  # type: ignore[arg-type]


def _honest(n: int, d: int = 50, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


def test_the_mean_weighs_by_examples() -> None:
    result = rule("mean")(np.array([[1.0, 0.0], [5.0, 4.0]]), [3, 1])
    assert isinstance(result, Aggregate)
    assert result.update_D.dtype == np.float32
    np.testing.assert_array_equal(result.update_D, [2.0, 1.0])
    np.testing.assert_array_equal(result.weights_N, [0.75, 0.25])
    assert (result.selected, result.rejected, result.scores) == ((0, 1), (), None)


def test_without_counts_all_weigh_the_same() -> None:
    np.testing.assert_array_equal(rule("mean")(np.array([[1.0], [5.0]])).update_D, [3.0])


def test_an_update_on_no_example_takes_no_part() -> None:
    result = rule("mean")(np.array([[1.0], [np.nan], [3.0]]), [1, 0, 1])
    np.testing.assert_array_equal(result.update_D, [2.0])
    assert (result.selected, result.rejected) == ((0, 2), (1,))


def test_a_claimed_count_is_capped() -> None:
    np.testing.assert_allclose(rule("mean", max_examples=100).shares([50, 10**15]), [1 / 3, 2 / 3])


def test_uniform_weighs_every_update_with_examples_the_same() -> None:
    shares_N = rule("mean", weighting="uniform", max_examples=5).shares([1, 0, 10**9, 3, 7])
    np.testing.assert_array_equal(shares_N, [0.25, 0, 0.25, 0.25, 0.25])


@given(COUNTS, st.sampled_from(["examples", "uniform"]), st.none() | st.integers(1, 10**6))
def test_shares_sum_to_one_and_follow_their_site(counts: list[int], weighting: str, cap: int | None) -> None:
    mean = rule("mean", weighting=weighting, max_examples=cap)  # type: ignore[arg-type]
    shares_N = mean.shares(counts)
    assert abs(shares_N.sum() - 1) < 1e-12
    assert (shares_N >= 0).all()
    assert ((shares_N == 0) == (np.array(counts) == 0)).all()
    np.testing.assert_array_equal(mean.shares(counts[::-1]), shares_N[::-1])


@pytest.mark.parametrize("name", ["mean", "median", "geometric-median"])
@pytest.mark.parametrize("counts", [[0, 0, 0], [0]])
def test_no_examples_at_all_have_no_aggregate(name: str, counts: list[int]) -> None:
    with pytest.raises(TooFewExamples, match=f"{len(counts)} updates rest on no example"):
        rule(name)(np.ones((len(counts), 2)), counts)


@pytest.mark.parametrize("name", ["mean", "median"])
@pytest.mark.parametrize("count", [-9, np.nan, np.inf])
def test_impossible_counts_are_refused(name: str, count: float) -> None:
    with pytest.raises(InvalidUpdate, match="update 1 claims to rest on"):
        rule(name)(np.ones((2, 4)), [5, count])


def test_counts_must_match_the_updates() -> None:
    with pytest.raises(InvalidUpdate, match="3 numbers of examples came with 2 updates"):
        rule("mean")(np.ones((2, 4)), [1, 1, 1])


def test_a_value_that_is_not_finite_is_refused_by_name() -> None:
    updates_ND = np.ones((3, 5))
    updates_ND[1, 4] = np.nan
    with pytest.raises(InvalidUpdate, match="mean is to withstand 0; update 1: it holds a value that is not finite"):
        rule("mean")(updates_ND)


def test_finite_updates_may_add_up_to_what_is_not() -> None:
    @dataclass(frozen=True)
    class Total(Mean):
        """As another package might bring it."""

        def decide(self, shares_N: np.ndarray) -> Decision:
            return Decision(WeightedSum(np.ones(len(shares_N))), tuple(range(len(shares_N))))

    np.testing.assert_array_equal(Aggregator("total", Total())(np.ones((3, 2))).update_D, [3, 3])
    with pytest.raises(InvalidUpdate, match="finite, but what they add up to is not"):
        Aggregator("total", Total())(np.full((2, 2), 3e38))


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_examples is 0"):
        rule("mean", max_examples=0)
    with pytest.raises(ConfigError, match="weighting is 'sites'"):
        rule("mean", weighting="sites")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="krum cannot weigh updates by examples"):
        rule("krum", f=1, weighting="examples")
    for name in ("clip_norm", "reject_norm"):
        with pytest.raises(ConfigError, match=f"{name} is -1.0, expected a positive number"):
            rule("mean", **{name: -1.0})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no pre-aggregation 'nmm'") as caught:
        rule("median", pre=["nmm"])
    assert caught.value.hint == "did you mean nnm?"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("mean", {"max_examples": 1.5}, "max_examples is 1.5, expected a whole number"),
        ("mean", {"clip_norm": "1"}, "clip_norm is '1', expected a positive number"),
        ("centered-clipping", {"clip": None}, "clip is None, expected a positive number"),
        ("dnc", {"f": 1, "c": "x"}, "c is 'x', expected a positive number"),
        ("geometric-median", {"smoothing": True}, "smoothing is True, expected a positive number"),
        ("median", {"f": ""}, "f is '', expected a whole number"),
        ("foolsgold", {"f": False}, "f is False, expected a whole number"),
    ],
)
def test_parameters_of_another_type_are_refused(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rule(name, **parameters)  # type: ignore[arg-type]


def test_numbers_of_numpy_and_one_mixing_by_its_name_are_understood() -> None:
    assert rule("multi-krum", f=np.int64(1), m=np.int32(2), pre="nnm") == rule("multi-krum", f=1, m=2, pre=["nnm"])


@pytest.mark.parametrize("counts", [["many"] * 3, [1j] * 3, [[1], [1, 2], [3]]])
def test_counts_that_are_no_numbers_are_refused(counts: list[object]) -> None:
    with pytest.raises(InvalidUpdate, match="the numbers of examples are no numbers"):
        rule("mean")(np.ones((3, 2)), counts)  # type: ignore[arg-type]


class Unreadable:
    """A tensor that numpy cannot read: of bfloat16, with a gradient, on another device."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise self.error


@pytest.mark.parametrize("error", [TypeError("unsupported ScalarType BFloat16"), RuntimeError("requires grad")])
def test_tensors_that_numpy_cannot_read_are_refused_with_the_mend(error: Exception) -> None:
    with pytest.raises(InvalidUpdate, match=str(error)) as caught:
        rule("mean")(Unreadable(error))  # type: ignore[arg-type]
    assert "tensor.detach().float()" in caught.value.hint


@pytest.mark.parametrize("name", ["mean", "median", "geometric-median", "fltrust", "foolsgold"])
def test_mixing_by_neighbours_must_know_f(name: str) -> None:
    with pytest.raises(ConfigError, match="nnm must know how many liars to expect"):
        rule(name, pre=["nnm"])


def test_the_rule_is_the_mean_unless_it_is_robust() -> None:
    assert isinstance(rule("mean").rule, Mean)
    assert rule("mean").weighting == "examples"
    assert rule("multi-krum", f=1).weighting == "uniform"


def test_no_examples_among_what_is_left_have_no_aggregate() -> None:
    updates_ND = np.array([[0.5], [0.25], [5.0], [6.0], [0.75]])
    for name in ("median", "geometric-median"):
        with pytest.raises(TooFewExamples, match="the 3 updates that were not refused rest on no example"):
            rule(name, f=2, reject_norm=1.0)(updates_ND, [0, 0, 3, 3, 0])


@pytest.mark.parametrize("name", [n for n in NAMES if n != "mean"])
def test_a_claimed_count_moves_no_robust_rule(name: str) -> None:
    updates_ND = _honest(11)
    modest = _rule(name, 2)(updates_ND, np.ones(11))
    boasting = _rule(name, 2)(updates_ND, [10**12, *[1] * 10])
    np.testing.assert_array_equal(modest.update_D, boasting.update_D)


def test_a_plan_may_let_counts_weigh() -> None:
    updates_ND = _honest(7)
    result = rule("multi-krum", f=1, m=2, weighting="examples")(updates_ND, [10, 30, 10, 30, 10, 30, 10])
    assert len(result.selected) == 2
    assert result.weights_N is not None
    assert set(np.round(result.weights_N[list(result.selected)], 12)) <= {0.25, 0.5, 0.75}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_as_if_it_had_never_come(name: str, poison: float) -> None:
    """f shrinks with it."""
    updates_ND = _honest(12)
    updates_ND[4, 7] = poison
    others = [k for k in range(12) if k != 4]
    result, without = _rule(name, 2)(updates_ND), _rule(name, 1)(updates_ND[others])
    np.testing.assert_array_equal(result.update_D, without.update_D)
    assert result.refused == {4: "it holds a value that is not finite"}
    assert result.selected == tuple(others[k] for k in without.selected)
    assert 4 in result.rejected


@pytest.mark.parametrize("name", NAMES)
def test_more_worthless_updates_than_liars_expected_are_refused(name: str) -> None:
    updates_ND = _honest(12)
    updates_ND[[1, 5, 8]] = np.nan
    with pytest.raises(InvalidUpdate, match=r"3 of 12 updates are worthless.*withstand 2.*update 1: .*update 8: "):
        _rule(name, 2)(updates_ND)


@pytest.mark.parametrize(("name", "most"), [("fltrust", 4), ("foolsgold", 4), ("median", 2), ("geometric-median", 2)])
def test_without_f_as_many_may_be_worthless_as_the_theorem_allows(name: str, most: int) -> None:
    updates_ND = _honest(5)
    reference_ND = updates_ND[-1:].copy() if name == "fltrust" else None
    updates_ND[:most, 1] = np.nan
    assert sorted(rule(name)(updates_ND, reference=reference_ND).refused) == list(range(most))
    updates_ND[most:, 1] = np.nan
    with pytest.raises(InvalidUpdate, match=f"5 of 5 updates are worthless, {name} is to withstand {most}"):
        rule(name)(updates_ND, reference=reference_ND)


def test_the_median_of_others_is_left_when_one_site_sends_nan() -> None:
    result = rule("median")(np.array([[1.0, 9.0], [np.nan, 9.0], [3.0, 9.0], [5.0, 9.0]]))
    np.testing.assert_array_equal(result.update_D, [3, 9])


def test_too_few_updates_name_what_is_needed() -> None:
    with pytest.raises(TooFewUpdates, match=r"krum with f = 5 needs n >= 2f \+ 3: at least 13 updates, got 3"):
        rule("krum", f=5)(np.ones((3, 2)))
    with pytest.raises(TooFewUpdates, match="at least 5 updates, got 3"):  # six sites make three buckets
        rule("krum", f=1, pre=["bucketing"])(np.ones((6, 2)))


def test_too_long_an_update_is_refused_and_a_long_one_is_scaled() -> None:
    updates_ND = np.array([[3.0, 4.0], [0.0, 1.0], [300.0, 400.0], [0.6, 0.8]])
    result = rule("median", clip_norm=1.0, reject_norm=100.0)(updates_ND)
    np.testing.assert_allclose(result.update_D, np.median([[0.6, 0.8], [0, 1], [0.6, 0.8]], axis=0), rtol=1e-6)
    assert result.refused == {2: "its norm is 500, at most 100 is accepted"}
    mean = rule("mean", clip_norm=1.0)(updates_ND[:2], [1, 3])
    np.testing.assert_allclose(mean.update_D, [0.15, 0.95], rtol=1e-6)
    np.testing.assert_allclose(mean.weights_N, [0.05, 0.75])


def test_the_mean_goes_on_without_what_is_too_long() -> None:
    updates_ND = np.array([[1.0], [3.0], [1000.0], [np.inf]])
    result = rule("mean", reject_norm=10.0)(updates_ND[:3])
    np.testing.assert_array_equal(result.update_D, [2.0])
    assert dict(result.refused) == {2: "its norm is 1e+03, at most 10 is accepted"}
    with pytest.raises(TooFewUpdates, match="at least 1 updates, got 0"):
        rule("mean", reject_norm=0.5)(updates_ND[:3])
    with pytest.raises(InvalidUpdate, match=r"1 of 4 updates are worthless.*update 3: it holds a value that is not"):
        rule("mean", reject_norm=10.0)(updates_ND)


@pytest.mark.parametrize("name", ["median", "krum", "trimmed-mean", "geometric-median"])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_an_infinity_is_refused_and_not_scaled(name: str, poison: float) -> None:
    updates_ND = _honest(7)
    updates_ND[2, 3] = poison
    result = _rule(name, 1, clip_norm=1.0)(updates_ND)
    assert dict(result.refused) == {2: "it holds a value that is not finite"}
    others = _rule(name, 0, clip_norm=1.0)(np.delete(updates_ND, 2, axis=0))
    np.testing.assert_allclose(result.update_D, others.update_D, rtol=1e-6)


def test_a_huge_update_is_scaled_to_next_to_nothing() -> None:
    updates_ND = np.array([[1.0, 0], [3e38, 3e38]])  # its norm is beyond float32's squares
    np.testing.assert_array_equal(rule("mean", clip_norm=1.0)(updates_ND).update_D, [0.5, 0])


@pytest.mark.parametrize("name", NAMES)
def test_scaling_is_the_same_as_scaled_updates(name: str) -> None:
    updates_ND = _honest(11)
    updates_ND[3] *= 50
    norms_N = np.linalg.norm(updates_ND.astype(np.float64), axis=1)
    scaled_ND = (updates_ND * np.minimum(1, 8 / norms_N)[:, None]).astype(np.float32)
    clipped = _rule(name, 2, clip_norm=8.0)(updates_ND)
    np.testing.assert_allclose(clipped.update_D, _rule(name, 2)(scaled_ND).update_D, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pre", [["nnm"], ["bucketing"], ["bucketing", "nnm"]])
def test_mixing_is_the_same_as_mixed_updates(name: str, pre: list[str]) -> None:
    """No mixed row is ever built; built by hand they give the same."""
    updates_ND = _honest(22, 40)
    aggregator = _rule(name, 2, pre=pre)
    if name == "dnc":
        aggregator = _rule(name, 2, pre=pre, coordinates=10**6)
    mixed_ND, n = updates_ND.astype(np.float64), 22
    for step in aggregator.pre:
        squared_NN = ((mixed_ND[:, None] - mixed_ND[None]) ** 2).sum(axis=2)
        if step.needs_distances:
            nearest = np.argsort(squared_NN, axis=1, kind="stable")[:, : n - 2]
            mixed_ND = mixed_ND[nearest].mean(axis=1)
        else:
            order = np.random.default_rng(9).permutation(n)
            mixed_ND = np.array([mixed_ND[order[k : k + 2]].mean(axis=0) for k in range(0, n, 2)])
        n = len(mixed_ND)
    by_hand = _rule(name, 2)(mixed_ND.astype(np.float32))
    result = aggregator(updates_ND, seed=9)
    np.testing.assert_allclose(result.update_D, by_hand.update_D, rtol=1e-4, atol=1e-6)
    if result.scores is not None:
        assert result.scores.shape == (22,)
    if result.weights_N is not None:
        np.testing.assert_allclose(result.weights_N @ updates_ND, result.update_D, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("buckets", "pre"), [(1, []), (2, []), (2, ["nnm"]), (3, ["nnm"])])
def test_an_update_has_the_score_of_its_own_bucket(buckets: int, pre: list[str]) -> None:
    updates_ND, seed = _honest(15), 5
    mix_MN = Bucketing(buckets).mix(15, None, seed)
    of_buckets = _rule("krum", 1, pre=pre)((mix_MN @ updates_ND).astype(np.float32)).scores
    scores = _rule("krum", 1, pre=["bucketing", *pre], buckets=buckets)(updates_ND, seed=seed).scores
    assert of_buckets is not None
    np.testing.assert_allclose(scores, of_buckets[np.argmax(mix_MN > 0, axis=0)], rtol=1e-3)  # type: ignore[arg-type]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="the seed is -1"):
        rule("median")(_honest(3), seed=-1)


def test_buckets_are_drawn_by_the_seed() -> None:
    updates_ND = _honest(12)
    first, again, other = (rule("median", pre=["bucketing"])(updates_ND, seed=s).update_D for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@given(st.data())
@settings(deadline=None)
def test_coordinate_rules_stay_within_the_honest_range(data: st.DataObject) -> None:
    """Whatever up to f liars send."""
    f = data.draw(st.integers(0, 3))
    n = data.draw(st.integers(4 * f + 3, 4 * f + 6))
    elements = st.floats(-1e6, 1e6, width=32)
    honest_ND = data.draw(hnp.arrays(np.float32, (n - f, 5), elements=elements))
    anything = st.floats(width=32, allow_nan=False, allow_infinity=False)
    lies_ND = data.draw(hnp.arrays(np.float32, (f, 5), elements=anything))
    updates_ND = np.vstack([honest_ND, lies_ND])[data.draw(st.permutations(range(n)))]
    for name in ("median", "trimmed-mean"):
        update_D = rule(name, f=f)(updates_ND).update_D
        slack = 1e-6 * np.abs(honest_ND).max(axis=0)
        assert (update_D >= honest_ND.min(axis=0) - slack).all(), name
        assert (update_D <= honest_ND.max(axis=0) + slack).all(), name


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_the_order_of_the_sites_does_not_matter(data: st.DataObject) -> None:
    updates_ND = _honest(13, 20, data.draw(st.integers(0, 2**32 - 1)))
    order = np.array(data.draw(st.permutations(range(13))))
    for name in NAMES:
        if name == "mda":
            continue  # several subsets may have the same, least diameter
        straight, shuffled = _rule(name, 2)(updates_ND), _rule(name, 2)(updates_ND[order])
        np.testing.assert_allclose(shuffled.update_D, straight.update_D, rtol=1e-4, atol=1e-5, err_msg=name)
        assert tuple(sorted(order[list(shuffled.selected)])) == straight.selected, name


@given(st.integers(0, 2**32 - 1), st.floats(-100, 100), st.sampled_from([2.0, 0.125, -4.0]))
@settings(deadline=None, max_examples=40)
def test_most_rules_move_and_stretch_with_the_updates(seed: int, shift: float, scale: float) -> None:
    updates_ND = _honest(13, 20, seed)
    moved_ND = (updates_ND.astype(np.float64) * scale + shift).astype(np.float32)
    for name in NAMES:
        if name in ("centered-clipping", "bulyan", "meamed") and (name == "centered-clipping" or scale < 0):
            continue  # clipping knows the origin and a length; of two values as close, the smaller is taken
        straight, moved = _rule(name, 2)(updates_ND), _rule(name, 2)(moved_ND)
        tolerance = 1e-4 * (abs(scale) + abs(shift))
        np.testing.assert_allclose(moved.update_D, straight.update_D * scale + shift, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_equal_updates_give_that_update(name: str) -> None:
    result = _rule(name, 1)(np.tile(np.array([[0.5, -3.0]], np.float32), (7, 1)))
    np.testing.assert_allclose(result.update_D, [0.5, -3.0], rtol=1e-6)
    assert np.isfinite(result.update_D).all()


@pytest.mark.parametrize("name", ["mean", "trimmed-mean", "meamed", "mda", "dnc", "median", "geometric-median"])
def test_one_update_alone_is_the_aggregate(name: str) -> None:
    parameters = {} if name in ("mean", "median", "geometric-median") else {"f": 0}
    np.testing.assert_allclose(rule(name, **parameters)(np.array([[1.0, 2.0]])).update_D, [1, 2])


def test_equal_updates_are_reported_as_a_clique() -> None:
    updates_ND = _honest(9)
    updates_ND[[5, 7]] = updates_ND[2]
    assert rule("multi-krum", f=1)(updates_ND).cliques == ((2, 5, 7),)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_integers_give_integers_rounded_half_to_even(dtype: type) -> None:
    mean = rule("mean")(np.array([[3], [5], [5], [9]], dtype))
    assert (mean.update_D.tolist(), mean.update_D.dtype) == ([6], dtype)  # 5.5
    median = rule("median")(np.array([[3], [5], [5], [9]], dtype))
    assert (median.update_D.tolist(), median.update_D.dtype) == ([5], dtype)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8])
def test_the_largest_integers_do_not_wrap_around(dtype: type) -> None:
    info = np.iinfo(dtype)
    result = rule("mean")(np.array([[info.max, info.min]] * 2, dtype))
    assert result.update_D.tolist() == [info.max, info.min]


def test_large_integers_are_exact() -> None:
    large = 2**40 + 1
    for name in ("mean", "median"):
        assert rule(name)(np.full((3, 1), large)).update_D.tolist() == [large]


def test_many_halves_do_not_overflow() -> None:
    assert rule("mean")(np.ones((4096, 1), np.float16)).update_D.tolist() == [1.0]
    assert rule("mean")(np.array([[2.0], [4.0]], np.float16), [70000, 70000]).update_D.tolist() == [3.0]


def test_updates_of_different_shapes_are_refused() -> None:
    for updates in ([np.ones(1), np.ones(2)], np.ones(3), np.ones((2, 2, 2))):
        with pytest.raises(InvalidUpdate, match="shape"):
            rule("mean")(updates)


@pytest.mark.parametrize("name", [*NAMES, "mean"])
def test_the_updates_stay_as_they_were(name: str) -> None:
    updates_ND = _honest(11)
    before = updates_ND.copy()
    (rule("mean") if name == "mean" else _rule(name, 2))(updates_ND)
    np.testing.assert_array_equal(updates_ND, before)


def test_rules_that_want_a_reference_say_so() -> None:
    updates_ND = _honest(5)
    with pytest.raises(InvalidUpdate, match="fltrust got 0 reference rows, expected 1"):
        rule("fltrust")(updates_ND)
    with pytest.raises(InvalidUpdate, match="krum got 1 reference rows, expected 0"):
        rule("krum", f=1)(updates_ND, reference=updates_ND[:1])
    with pytest.raises(InvalidUpdate, match="foolsgold got 2 reference rows, expected 0 or 5"):
        rule("foolsgold")(updates_ND, reference=updates_ND[:2])
    with pytest.raises(InvalidUpdate, match="the reference has 3 values, the updates have 50"):
        rule("fltrust")(updates_ND, reference=np.ones((1, 3)))
    with pytest.raises(InvalidUpdate, match="the reference holds a value that is not finite"):
        rule("fltrust")(updates_ND, reference=np.full((1, 50), np.nan))


def test_clipping_may_begin_at_the_last_aggregate() -> None:
    updates_ND, last_D = _honest(5) + 10, np.full(50, 10.0, np.float32)
    near = rule("centered-clipping", clip=1.0)(updates_ND, reference=last_D[None])
    far = rule("centered-clipping", clip=1.0)(updates_ND)
    assert np.linalg.norm(near.update_D - last_D) <= 1 + 1e-5
    assert np.linalg.norm(far.update_D) <= 1 + 1e-5
    assert near.weights_N is not None
    assert near.weights_N.shape == (5,)


def test_what_is_decided_can_be_carried_out_elsewhere() -> None:
    rows = ArrayRows(_honest(11))
    weighed = rule("multi-krum", f=2).decide(rows, np.ones(11))
    ranked = rule("bulyan", f=2).decide(rows, np.ones(11))
    assert isinstance(weighed.combination, WeightedSum)
    assert isinstance(ranked.combination, Coordinatewise)
    assert weighed.weights_N is not None
    assert weighed.weights_N.sum() == pytest.approx(1)
    assert ranked.weights_N is None
