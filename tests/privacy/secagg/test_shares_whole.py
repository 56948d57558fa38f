"""Sessions of shares between sites that follow the protocol: exact, and selected as in the clear."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from by_definition import geometry, uniform
from foedus.aggregators.aggregator import Aggregator
from foedus.aggregators.by_distances import decide_by_distances
from foedus.aggregators.centered_clipping import CenteredClipping
from foedus.aggregators.decision import WeightedSum
from foedus.aggregators.geometric_median import GeometricMedian
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.krum import MultiKrum
from foedus.aggregators.protocols import DistanceRule
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.judging import Judged
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring
from foedus.privacy.secagg.share_terms import finest_shared_scale, share_fault
from foedus.privacy.secagg.sharing_opening import add_up_shares
from foedus.privacy.secagg.signing import Kind
from foedus.privacy.secagg.sketch_terms import bound_of
from foedus.privacy.sharing.selection import hides_enough, integer_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import federation, local
from shared_sums import PHASES, POLICY, UNEQUAL, share_server, shared
from sketched_sums import benign

TEN = federation(10)
Rows = np.ndarray


def weighing(rule: DistanceRule) -> Callable[[Judged], dict[bytes, int]]:
    """What a rule makes of the distances, in whole weights."""

    def choose(judged: Judged) -> dict[bytes, int]:
        decision = decide_by_distances(Aggregator("rule", rule), Geometry(judged.squared_PP))
        assert isinstance(decision.combination, WeightedSum)
        whole_N = integer_weights(decision.combination.weights_N)
        return {site: int(weight) for site, weight in zip(judged.sites, whole_N, strict=True) if weight}

    return choose


def test_the_sum_is_exact_and_so_is_every_distance() -> None:
    run = share_server(TEN, shared(TEN))
    run.run()
    found = run.require_exact()
    assert found.liars == ()
    assert run.refusals == []
    judged = run.collection.judged
    assert judged is not None
    assert judged.sites == TEN.ids
    assert not judged.refused
    np.testing.assert_array_equal(
        judged.squared_PP, geometry(np.array([run.plain[site] for site in TEN.ids])).squared_PP
    )
    assert run.collection.waiting == frozenset()
    assert run.collection.revealing


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2), st.integers(1, 40), st.integers(0, 1000))
def test_multi_krum_selects_exactly_what_it_selects_in_the_clear(d: int, f: int, steps: int, seed: int) -> None:
    """Also where many distances are alike: with few steps, and few values."""
    described = shared(TEN, num_coordinates=d, byzantine=f, scale=float(steps))
    run = share_server(TEN, described, updates=benign(described, seed))
    run.run()
    run.require_exact()
    rows_ND = np.array([run.plain[site] for site in TEN.ids])
    clear = MultiKrum(f).judge(geometry(rows_ND), uniform(10)).selected
    assert run.collection.selected == tuple(TEN.ids[place] for place in clear)
    np.testing.assert_array_equal(run.collection.judged.squared_PP, geometry(rows_ND).squared_PP)  # type: ignore[union-attr]


@pytest.mark.parametrize("rule", [GeometricMedian(f=1), CenteredClipping(clip=10.0 * 4096, iterations=3, f=1)])
def test_rules_with_weights_give_what_they_give_in_the_clear_up_to_the_rounding_of_weights(rule: DistanceRule) -> None:
    described = shared(TEN, num_coordinates=200, rule="weighing")
    run = share_server(TEN, described, choose=weighing(rule), policy=UNEQUAL)
    run.updates[TEN.ids[4]] *= np.float32(-1.3)
    run.run()
    found = run.require_exact()
    rows_ND = np.array([run.plain[site] for site in TEN.ids])
    weights_N = rule.judge(geometry(rows_ND), uniform(10)).combination.weights_N  # type: ignore[union-attr]
    exact_D = weights_N @ rows_ND
    off_D = found.sum_D * (weights_N.sum() / found.total_weight) - exact_D
    # Each weight is off by half a step of the largest's 1024th at most, and so, over again, is their sum.
    most = 2 * 10 * weights_N.max() / 2048 * np.linalg.norm(rows_ND, axis=1).max()
    assert np.linalg.norm(off_D) <= most
    assert np.linalg.norm(off_D) < 0.002 * np.linalg.norm(exact_D)
    assert len(set(run.collection.weights.values())) > 2


@pytest.mark.parametrize("phase", PHASES)
def test_a_site_that_leaves_before_any_message_does_not_spoil_the_sum(phase: Phase) -> None:
    run = share_server(TEN, shared(TEN))
    gone = TEN.ids[3]
    run.run({gone: phase})
    found = run.require_exact()
    assert (gone in run.collection.came) == (phase not in PHASES[:2])
    assert run.collection.judged is not None
    dealt = PHASES[:3]  # who has not proved its update short has dealt none
    assert (gone in run.collection.judged.sites) == (phase not in dealt)
    if phase in dealt:
        assert gone not in found.survivors


@pytest.mark.parametrize("phase", PHASES)
def test_more_leaving_than_may_ends_the_session_before_anything_is_opened(phase: Phase) -> None:
    run = share_server(TEN, shared(TEN))

    def finish() -> None:
        run.run(dict.fromkeys(TEN.ids[3:9], phase))
        add_up_shares(run.collection)

    with pytest.raises(SecureSumFailed) as caught:
        finish()
    assert caught.value.reason == "too-few"
    if phase is not Phase.SUMS:
        assert not any(message[0] == Kind.SUM for site in run.sites.values() for message in site.sent)


@settings(max_examples=12, deadline=None)
@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from(PHASES[1:]), max_size=2), st.sets(st.integers(0, 9), max_size=2)
)
def test_whoever_leaves_or_lies_the_sum_is_exact_or_there_is_none(leaves: dict[int, Phase], liars: set[int]) -> None:
    run = share_server(TEN, shared(TEN, num_coordinates=7))
    gone = {TEN.ids[place]: phase for place, phase in leaves.items()}
    try:
        run.to(Phase.CONFIRMATIONS, gone)
        held_back = {site for site, phase in gone.items() if phase not in (Phase.ACKS, Phase.SUMS)}
        lies = {TEN.ids[place]: lying(place) for place in liars}
        run.send_changed(lies | dict.fromkeys(held_back, lambda _: b""))
        run.to(Phase.SUMS, gone)
        run.require_exact()
    except SecureSumFailed as error:
        few = error.reason == "too-few" and len(gone) > run.described.dropouts
        many = error.reason == "undecodable" and len(liars) > run.described.wrong_holders
        assert few or many
        return
    judged = run.collection.judged
    assert judged is not None
    said = {TEN.ids[place] for place in liars} & set(run.collection.products)
    assert not said & set(run.collection.selected)
    assert said & set(run.collection.deals) <= set(judged.refused)
    assert len(judged.refused) <= len(said)  # nobody honest is left out with them


def lying(place: int) -> Callable[[bytes], bytes]:
    """Another product, and another degree."""
    return lambda body: (int.from_bytes(body[:8], "little") ^ (1 << place)).to_bytes(8, "little") + body[8:]


@pytest.mark.parametrize(("n", "packing"), [(7, 1), (10, 2), (20, 4), pytest.param(64, 11, marks=pytest.mark.slow)])
def test_as_many_blocks_as_there_can_be(n: int, packing: int) -> None:
    made = federation(n)
    described = shared(made, num_coordinates=97)
    assert described.packing == packing
    run = share_server(made, described)
    run.run({made.ids[1]: Phase.PRODUCTS})
    run.require_exact()
    judged = run.collection.judged
    assert judged is not None
    np.testing.assert_array_equal(
        judged.squared_PP, geometry(np.array([run.plain[site] for site in judged.sites])).squared_PP
    )


@pytest.mark.slow
def test_a_hundred_thousand_values() -> None:
    scale = finest_shared_scale(40.0, 100_000, 2)
    run = share_server(TEN, shared(TEN, num_coordinates=100_000, scale=scale))
    run.run({TEN.ids[2]: Phase.SUMS})
    run.require_exact()


@given(st.lists(st.integers(0, 1024), min_size=3, max_size=12), st.integers(1, 6), st.data())
def test_without_the_weights_of_colluders_the_others_hide_as_many_less(
    weights: list[int], least: int, data: st.DataObject
) -> None:
    colluders = data.draw(st.sets(st.integers(0, len(weights) - 1), max_size=least))
    if not hides_enough(np.array(weights), least):
        return
    left = [weight for place, weight in enumerate(weights) if place not in colluders]
    assert sum(left) ** 2 >= (least - len(colluders)) * sum(weight**2 for weight in left)


# what a session must be like


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"privacy_threshold": 1}, "2 sites may collude, and the privacy threshold T is 1"),
        ({"dropouts": 3}, "K = 2, D = 3 and E = 1 need 12 sites, there are 10"),
        ({"packing": 3}, "n >= 2(T + K - 1) + 1 + D + 2E does not hold"),
        ({"packing": 0}, "the packing K is 0, expected at least 1"),
        ({"wrong_holders": 2}, "need 12 sites, there are 10"),
        ({"byzantine": 2, "wrong_holders": 1}, "f = 2 sites may lie, but only E = 1"),
        ({"strict": False}, "only if they are proved short"),
        ({"weighted": True, "scale": 1.0}, "sites do not weigh their own updates"),
        ({"ring": Ring.W64}, "words of 64 bits, expected 32"),
        ({"degree": 8}, "8 neighbours, expected all"),
        ({"scale": 2.0**20}, "could wrap around: lower the scale"),
        ({"num_coordinates": 10**7 + 1}, "expected at most 10000000"),
        (
            {"num_coordinates": 900_000, "scale": 64.0},
            "10 sites would hold more than 33554432 bytes each of 900000 values",
        ),
        ({"min_survivors": 4}, "min_survivors is 4"),
    ],
)
def test_a_session_that_would_not_keep_updates_apart_is_refused(changes: dict[str, object], reason: str) -> None:
    run = share_server(TEN, shared(TEN, **changes))
    site = run.sites[TEN.ids[0]]
    known = local(run.described)
    assert site.join(run.collection.offer(), known) is None
    assert site.refusal is not None
    assert site.refusal.code == "policy"
    assert reason in site.refusal.reason


def test_a_site_shares_its_update_only_if_it_allows_that() -> None:
    run = share_server(TEN, shared(TEN), policy=SumPolicy())
    site = run.sites[TEN.ids[0]]
    assert site.join(run.collection.offer(), local(run.described)) is None
    assert site.refusal is not None
    assert "does not allow the protection 'shares'" in site.refusal.reason
    POLICY.require(run.described)


@pytest.mark.parametrize("rule", ["geometric-median", "centered-clipping"])
def test_a_rule_that_weighs_one_more_than_another_is_refused_before_anything_is_shared(rule: str) -> None:
    run = share_server(TEN, shared(TEN, rule=rule))
    site = run.sites[TEN.ids[0]]
    assert site.join(run.collection.offer(), local(run.described)) is None
    assert site.refusal is not None
    assert site.refusal.code == "policy"
    assert "does not allow unequal_weights" in site.refusal.reason
    UNEQUAL.require(run.described)


@given(st.floats(1e-3, 1e3), st.integers(4, 800_000))
def test_the_finest_scale_is_the_finest(clip_norm: float, d: int) -> None:
    def at(scale: float) -> str | None:
        described = shared(TEN, num_coordinates=d, clip_norm=clip_norm, scale=scale, packing=2)
        return share_fault(described)

    finest = finest_shared_scale(clip_norm, d, 2)
    assert at(finest) is None
    assert finest * clip_norm > 2.0**22 or at(2 * finest) is not None
    described = shared(TEN, num_coordinates=d, clip_norm=clip_norm, scale=finest)
    width = (8 * bound_of(described) - 1).bit_length()
    assert d * 2 ** (2 * width + 2) < 2**60
