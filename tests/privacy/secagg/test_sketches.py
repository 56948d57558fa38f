"""Sessions of sketches between sites that follow the protocol: exact, and selected as in the clear."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from by_definition import geometry, uniform
from foedus.aggregators.krum import MultiKrum
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.opening import SecureSum
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring
from foedus.privacy.secagg.signing import Kind
from foedus.privacy.secagg.sketch_terms import MAX_BOUND, bound_of
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import federation, local
from sketched_sums import PHASES, POLICY, PROVED_PHASES, SketchServer, benign, sketch_server, sketched

TEN = federation(10)
Rows = np.ndarray


def whole(run: SketchServer, sites: tuple[bytes, ...]) -> Rows:
    return np.array([run.plain[site].view("<i4") for site in sites]).astype(np.int64)


@pytest.mark.parametrize("strict", [False, True])
def test_the_sum_of_the_selected_is_exact_and_everybody_is_judged(strict: bool) -> None:
    run = sketch_server(TEN, sketched(TEN, strict=strict))
    run.run()
    found = run.require_exact()
    assert found.liars == ()
    assert run.refusals == []
    assert run.collection.judged is not None
    assert run.collection.judged.sites == TEN.ids
    assert not run.collection.judged.refused
    assert len(found.survivors) == 10 - 2 - 2  # n - f - 2
    assert run.collection.waiting == frozenset()
    assert run.collection.revealing


EVERY_PHASE = [(phase, False) for phase in PHASES] + [(phase, True) for phase in PROVED_PHASES[3:]]


@pytest.mark.parametrize(("phase", "strict"), EVERY_PHASE)
def test_a_site_that_leaves_before_any_message_does_not_spoil_the_sum(phase: Phase, strict: bool) -> None:
    run = sketch_server(TEN, sketched(TEN, strict=strict))
    gone = TEN.ids[3]
    run.run({gone: phase})
    found = run.require_exact()
    assert (gone in run.collection.survivors) == (phase not in PHASES[:3])
    assert run.collection.judged is not None
    dealt = PHASES[: 5 if strict else 4]  # who has not proved its sketch short has dealt none
    assert (gone in run.collection.judged.sites) == (phase not in dealt)
    if phase in dealt:
        assert gone not in found.survivors


def finish(run: SketchServer, leaves: dict[bytes, Phase]) -> SecureSum:
    run.run(leaves)
    return run.result()


@pytest.mark.parametrize(("phase", "strict"), EVERY_PHASE)
def test_more_leaving_than_may_ends_the_session_before_anything_is_opened(phase: Phase, strict: bool) -> None:
    run = sketch_server(TEN, sketched(TEN, strict=strict))
    with pytest.raises(SecureSumFailed) as caught:
        finish(run, dict.fromkeys(TEN.ids[3:9], phase))
    assert caught.value.reason == "too-few"
    if phase is not Phase.SUMS:
        assert not any(message[0] == Kind.SUM for site in run.sites.values() for message in site.sent)


def test_drop_outs_are_those_of_all_phases_together() -> None:
    made = federation(20)
    described = sketched(made, wrong_holders=3, dropouts=5, byzantine=3)
    run = sketch_server(made, described)
    leaves = {made.ids[2]: Phase.SHARES, made.ids[5]: Phase.DEALS, made.ids[7]: Phase.AGREEMENTS}
    run.run(leaves | {made.ids[9]: Phase.PRODUCTS, made.ids[11]: Phase.SUMS})
    found = run.require_exact()
    assert len(found.survivors) >= described.needed_survivors


@settings(max_examples=12, deadline=None)
@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from(PHASES[1:]), max_size=2),
    st.sets(st.integers(0, 9), max_size=3),
    st.booleans(),
)
def test_whoever_leaves_or_lies_the_sum_is_exact_or_there_is_none(
    leaves: dict[int, Phase], liars: set[int], strict: bool
) -> None:
    run = sketch_server(TEN, sketched(TEN, strict=strict, num_coordinates=20))
    gone = {TEN.ids[place]: phase for place, phase in leaves.items()}
    answering = PROVED_PHASES if strict else PHASES
    before, absent = answering[answering.index(Phase.PRODUCTS) - 1], {Phase.ACKS, Phase.SUMS}
    try:
        run.to(before, gone)
        held_back = {site for site, phase in gone.items() if phase not in absent}
        lies = {TEN.ids[place]: lying(place) for place in liars}
        run.send_changed(lies | dict.fromkeys(held_back, lambda _: b""))
        run.to(Phase.SUMS, gone)
        found = run.require_exact()
    except SecureSumFailed as error:
        few = error.reason == "too-few" and len(gone) > run.described.dropouts
        many = error.reason == "undecodable" and len(liars) > run.described.wrong_holders
        assert few or many
        return
    judged = run.collection.judged
    assert judged is not None
    said = {TEN.ids[place] for place in liars} & set(run.collection.products)
    assert not said & set(found.survivors)
    assert said & set(run.collection.deals) <= set(judged.refused)
    assert len(judged.refused) <= len(said)  # nobody honest is left out with them


def lying(place: int) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        return (int.from_bytes(body[:8], "little") ^ (1 << place)).to_bytes(8, "little") + bytes(8) + body[16:]

    return change


def scaled(rows_ND: Rows, f: int) -> Rows:
    return -3 * rows_ND[f:].mean(axis=0)


def little_is_enough(rows_ND: Rows, f: int) -> Rows:
    """Baruch et al. 2019: the honest mean, less so much of their spread as goes unnoticed."""
    return rows_ND[f:].mean(axis=0) - 0.3 * rows_ND[f:].std(axis=0)


def opposing(rows_ND: Rows, f: int) -> Rows:
    """Xie et al. 2019: inner product manipulation."""
    return -0.5 * rows_ND[f:].mean(axis=0)


@pytest.mark.parametrize("attack", [None, scaled, little_is_enough, opposing])
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_multi_krum_selects_as_by_the_updates_themselves(attack: Callable[[Rows, int], Rows] | None, seed: int) -> None:
    described = sketched(TEN, num_coordinates=2000)
    updates, f = benign(described, seed), described.byzantine
    if attack is not None:
        rows_ND = np.array([updates[site] for site in TEN.ids])
        updates |= dict.fromkeys(TEN.ids[:f], attack(rows_ND, f).astype(np.float32))
    run = sketch_server(TEN, described, updates=updates)
    run.run()
    found = run.require_exact()
    clear = MultiKrum(f).judge(geometry(whole(run, TEN.ids)), uniform(10)).selected
    expected = {TEN.ids[place] for place in clear}
    attackers = set(TEN.ids[:f]) if attack is not None else set()
    # Estimates are off by 3 per cent, so that at the margin one honest site may stand for another.
    assert len(expected & set(found.survivors)) >= len(expected) - 1
    assert attackers & set(found.survivors) == attackers & expected
    if attack is scaled:
        assert not attackers & set(found.survivors)


def test_a_rule_is_shown_estimates_of_the_distances() -> None:
    run = sketch_server(TEN, sketched(TEN, num_coordinates=3000))
    run.to(Phase.ACKS)
    judged = run.collection.judged
    assert judged is not None
    exact_PP = geometry(whole(run, judged.sites)).squared_PP
    off = judged.squared_PP[exact_PP > 0] / exact_PP[exact_PP > 0] - 1
    assert 0.005 < np.sqrt((off**2).mean()) < 0.08  # √(2 / 2048) = 0.03, but one J is behind all of them
    assert np.abs(off).max() < 0.25


def test_an_update_longer_than_allowed_is_told_by_its_sketch_and_left_out() -> None:
    """A site that does not clip; the server cannot see its update."""
    run = sketch_server(TEN, sketched(TEN))
    long_D = run.updates[TEN.ids[4]].astype(np.float64)
    long_D = np.rint(long_D * (1.4 * bound_of(run.described) / np.linalg.norm(long_D))).astype("<i4")
    run.attack({TEN.ids[4]: long_D.view("<u4")})
    run.to(Phase.SUMS)
    assert run.collection.judged is not None
    assert "longer than the clip norm" in run.collection.judged.refused[TEN.ids[4]]
    assert TEN.ids[4] not in run.require_exact().survivors


# what a session must be like


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"privacy_threshold": 1}, "2 sites may collude, and the privacy threshold T is 1"),
        ({"privacy_threshold": 0, "colluders": 0}, "withstands 0 colluding sites"),
        ({"dropouts": 2}, "n >= 2T + 1 + D + 2E does not hold: T = 2, D = 2 and E = 2 need 11 sites, there are 10"),
        ({"wrong_holders": 3}, "need 12 sites, there are 10"),
        ({"byzantine": 3}, "f = 3 sites may lie, but only E = 2"),
        ({"packing": 2}, "the packing K is 2, expected 1"),
        ({"packing": 0}, "the packing K is 0, expected 1"),
        ({"weighted": True, "scale": 1.0}, "not weighted"),
        ({"ring": Ring.W64}, "words of 64 bits, expected 32"),
        ({"degree": 8}, "8 neighbours, expected all"),
        ({"scale": 2.0**15}, "expected at most 1048576: lower the scale"),
        ({"min_survivors": 4}, "min_survivors is 4"),
    ],
)
def test_a_session_that_would_not_keep_sketches_apart_is_refused(changes: dict[str, object], reason: str) -> None:
    run = sketch_server(TEN, sketched(TEN, **changes))
    site = run.sites[TEN.ids[0]]
    assert site.join(run.collection.offer(), local(run.described)) is None
    assert site.refusal is not None
    assert site.refusal.code == "policy"
    assert reason in site.refusal.reason


def test_a_site_takes_part_in_sketches_only_if_it_allows_them() -> None:
    run = sketch_server(TEN, sketched(TEN), policy=SumPolicy())
    site = run.sites[TEN.ids[0]]
    assert site.join(run.collection.offer(), local(run.described)) is None
    assert site.refusal is not None
    assert "does not allow the protection 'sketch'" in site.refusal.reason
    POLICY.require(run.described)


def test_the_bound_is_the_norm_that_quantising_keeps_to() -> None:
    described = sketched(TEN)
    assert bound_of(described) <= MAX_BOUND
    run = sketch_server(TEN, described)
    run.to(Phase.MASKED)
    lengths = np.linalg.norm(whole(run, TEN.ids).astype(float), axis=1)
    assert lengths.max() <= bound_of(described)
