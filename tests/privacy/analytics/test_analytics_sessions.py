"""Queries over real messages: exact in 64 bits, noisy as agreed, refused where the server or the cohort is wrong."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from foedus.errors import InvalidUpdate, SecureSumFailed
from foedus.privacy.analytics.counters import encode
from foedus.privacy.analytics.differencing import Cohort
from foedus.privacy.analytics.query import Query
from foedus.privacy.analytics.sessions import (
    answers,
    cost,
    guarded,
    local,
    may_be_answered,
    require_session,
    session_fields,
)
from foedus.privacy.events import DiscreteGaussianSum, NoiselessRelease, SkellamSum
from foedus.privacy.renyi import epsilon
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.masking import mask
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring
from foedus.privacy.secagg.quantise import whole_numbers
from foedus.privacy.secagg.site import receive
from foedus.privacy.secagg.state import SiteState, Stage
from foedus.privacy.secagg.stored import stored
from secure_sums import Server, federation, server, session

TEN = federation(10)
AGES = {"kind": "variance", "low": 0, "high": 120}


def query(noise: dict[str, Any] | None = None, **question: Any) -> Query:
    asked = {"column": "age"} | (question if "kind" in question else AGES | question)
    return Query.model_validate({"name": "ages", "question": asked, "noise": noise})


def described(asked: Query, **changes: Any) -> SessionDescriptor:
    return session(TEN, **(session_fields(asked) | changes))


def records(seed: int = 0) -> dict[bytes, np.ndarray]:
    random = np.random.default_rng(seed)
    return {site: random.integers(18, 100, random.integers(5, 200)).astype(float) for site in TEN.ids}


def asked_of_all(asked: Query, absent: Collection[bytes] = ()) -> Server:
    run = server(TEN, described(asked))
    run.updates = {site: encode(asked, {"age": values}) for site, values in records().items()}
    run.offer(known=local(asked))
    run.send()
    run.send()
    run.mask(absent)
    run.send()
    run.send()
    return run


def test_the_answer_is_that_over_all_records_but_the_drop_outs() -> None:
    asked = query()
    run = asked_of_all(asked, absent={TEN.ids[4]})
    opened = run.require_exact()
    found = answers(asked, run.described, opened)
    (variance,) = found.answers
    everything = np.concatenate([values for site, values in records().items() if site != TEN.ids[4]])
    assert variance.num_records == len(everything)
    assert (found.num_sites, found.epsilon, found.delta) == (9, None, None)
    assert variance.estimates[0].value == pytest.approx(everything.var(), rel=1e-12)


@pytest.mark.parametrize("largest", [2**31, 2**50])
def test_sums_are_exact_where_no_float_is(largest: int) -> None:
    made = session(
        TEN, rule="sum", scale=1.0, clip_norm=float(largest), ring=Ring.W64, num_coordinates=5, min_survivors=5
    )
    run = server(TEN, made)
    random = np.random.default_rng(1)
    run.updates = {site: random.integers(-largest, largest, 5, endpoint=True) for site in TEN.ids}
    for row in run.updates.values():
        row[0], row[1] = largest, -largest
    run.run()
    found = run.require_exact()
    assert found.sum_D[:2].tolist() == [10 * largest, -10 * largest]
    assert found.sum_D.tolist() == [sum(int(row[place]) for row in run.updates.values()) for place in range(5)]


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        (np.array([1, 101, 0]), "above 100"),
        (np.array([1, -101, 0]), "above 100"),
        (np.array([-(2**63), 0, 0]), "above 100"),
        (np.array([1.0, 2.0, 3.0], np.float32), "float32"),
        (np.array([1, 2, 3], np.int32), "int32"),
        (np.ones((3, 1), np.int64), "shape"),
    ],
)
def test_counters_that_are_not_what_was_agreed_do_not_leave(counters: np.ndarray, words: str) -> None:
    with pytest.raises(InvalidUpdate, match=words):
        whole_numbers(counters, largest=100, ring=Ring.W64)
    made = session(TEN, rule="sum", scale=1.0, clip_norm=100.0, ring=Ring.W64, num_coordinates=3)
    run = server(TEN, made)
    run.offer()
    run.send()
    run.send()
    site = run.sites[TEN.ids[0]]
    with pytest.raises(InvalidUpdate, match=words):
        mask(site.state, counters, site.member)
    assert mask(site.state, np.array([100, -100, 0]), site.member).reply


def test_updates_and_counters_are_not_mistaken_for_each_other() -> None:
    run = server(TEN, session(TEN))
    run.offer()
    run.send()
    run.send()
    site = run.sites[TEN.ids[0]]
    with pytest.raises(InvalidUpdate, match="int64"):
        mask(site.state, np.zeros(40, np.int64), site.member)


@pytest.mark.parametrize("changes", [{"scale": 2.0}, {"weighted": True}, {"mode": Mode.GROUPS, "group_size": 5}])
def test_whole_numbers_are_summed_in_one_way_only(changes: dict[str, Any]) -> None:
    made = session(TEN, rule="sum", scale=1.0, clip_norm=100.0, ring=Ring.W64)
    SumPolicy().require(made)
    with pytest.raises(SecureSumFailed, match="whole numbers are summed"):
        SumPolicy(modes=frozenset(Mode)).require(replace(made, **changes))


@pytest.mark.parametrize("kind", ["skellam", "discrete-gaussian"])
def test_noise_is_a_multiple_of_what_one_person_can_add(kind: str) -> None:
    asked = query({"multiplier": 4.0, "kind": kind}, kind="histogram", edges=tuple(range(0, 125, 5)))
    run = asked_of_all(asked)
    opened = run.require_exact()
    plain = np.sum([encode(asked, {"age": values}) for values in records().values()], axis=0)
    off = (opened.sum_D - plain).astype(float)
    honest = run.described.honest_survivors
    expected = 16 * 10 / honest
    assert 0.4 * expected < np.mean(off**2) < 2.2 * expected
    found = answers(asked, run.described, opened)
    one = next(one for one in found.answers[0].estimates if one.label == "[50, 55)")
    assert one.low is not None
    assert one.high is not None
    assert one.high - one.low == pytest.approx(2 * 1.96 * math.sqrt(expected))
    event = cost(asked, run.described)
    if kind == "skellam":
        assert isinstance(event, SkellamSum)
        assert event.variance == pytest.approx(16)
        assert (event.l1_sensitivity, event.l2_sensitivity) == (1, 1)
    else:
        assert isinstance(event, DiscreteGaussianSum)
        assert event.site_variance == pytest.approx(16 / honest)
        assert event.num_coordinates == 25
    assert 0 < epsilon([event], 1e-6) < 2
    mean = Query.model_validate(
        {
            "name": "mean",
            "question": {"kind": "mean", "column": "age", "low": 0, "high": 120},
            "records_per_person": 3,
            "noise": {"multiplier": 4.0},
        }
    )
    dear = cost(mean, described(mean))
    assert isinstance(dear, SkellamSum)
    assert (dear.l1_sensitivity, dear.l2_sensitivity) == pytest.approx((360, 180 * math.sqrt(2)))
    assert dear.variance == pytest.approx((4 * 180) ** 2 * 2)
    assert (found.epsilon, found.delta) == (epsilon([event], 1e-6), 1e-6)
    assert cost(query(), described(query())) == NoiselessRelease()


def test_a_server_that_changes_what_was_asked_is_refused() -> None:
    asked = query({"multiplier": 1.0})
    good = described(asked)
    require_session(asked, good)
    for changes in (
        {"noise_multiplier": good.noise_multiplier / 2},
        {"clip_norm": 2 * good.clip_norm},
        {"config_digest": bytes(32)},
        {"num_coordinates": 4},
        {"rule": "mean"},
        {"ring": Ring.W32},
        {"min_sites": 4, "min_survivors": 4},
    ):
        with pytest.raises(SecureSumFailed) as caught:
            require_session(asked, replace(good, **changes))
        assert caught.value.reason == "policy"
        assert "'ages'" in str(caught.value)


def test_another_query_under_the_same_name_is_another_session() -> None:
    one, other = query(), query(high=90)
    run = server(TEN, described(one))
    run.offer(known=local(other))
    assert all(site.refusal is not None and site.refusal.code == "policy" for site in run.sites.values())


def acknowledged(asked: Query, answered: list[Cohort], survivors: int) -> list[SiteState]:
    """Everybody's state once the survivors are known, as a site keeps it that remembers what was answered."""
    run = server(TEN, described(asked))
    run.updates = {site: encode(asked, {"age": values}) for site, values in records().items()}
    run.offer(known=local(asked))
    run.send()
    run.send()
    run.mask(absent=TEN.ids[survivors:])
    states = []
    for id_, message in run.collection.close().items():
        site = run.sites[id_]
        step = guarded(receive(site.state, message, site.member), answered)
        site.stored = stored(step.state)
        if step.refusal is None:
            run.take(step.reply)
        else:
            assert step.reply is None
            assert step.refusal.code == "policy"
            assert "differ by" in step.refusal.reason
        states.append(site.state)
    if not run.collection.acks:
        with pytest.raises(SecureSumFailed, match="acknowledged"):
            run.collection.close()
    return states


def test_a_cohort_of_one_site_fewer_than_one_answered_is_refused() -> None:
    everybody = frozenset(TEN.ids)
    for survivors, refused in ((10, False), (9, True), (8, True), (7, False)):
        for state in acknowledged(query(), [everybody], survivors):
            assert (state.stage is Stage.ENDED) == refused
            assert not state.seed
            assert bool(state.held) != refused


def test_with_noise_it_is_answered() -> None:
    for state in acknowledged(query({"multiplier": 1.0}, kind="count"), [frozenset(TEN.ids)], 9):
        assert state.stage is Stage.ACKED
        assert may_be_answered(state) is None


def test_what_is_remembered_is_every_cohort_that_may_have_been_answered() -> None:
    states = acknowledged(query(), [], 9)
    assert {may_be_answered(state) for state in states} == {frozenset(TEN.ids[:9])}
    run = server(TEN, session(TEN))
    run.run()
    assert all(may_be_answered(site.state) is None for site in run.sites.values())  # updates are no query
