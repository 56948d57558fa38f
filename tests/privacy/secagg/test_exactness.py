"""The sum is the plain sum of what the survivors quantised, bit for bit, whoever leaves whenever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg import graph
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring, Suite
from foedus.privacy.secagg.thresholds import majority, share_threshold
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import STAGES, federation, relaxed, server, session

LOOSE = {"colluders": 0, "min_sites": 2}


def patterns(n: int, most: int) -> Iterator[dict[int, Phase]]:
    """Every way in which at most so many of n sites leave, each before one of its five messages."""
    for count in range(most + 1):
        for leaving in combinations(range(n), count):
            for stages in product(STAGES, repeat=count):
                yield dict(zip(leaving, stages, strict=True))


def loose_session(n: int, **changes: Any) -> Any:
    made = federation(n)
    return made, session(made, **(LOOSE | {"min_survivors": max(2, -(-n // 2)), "num_coordinates": 7} | changes))


@pytest.mark.parametrize("n", [2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_every_pattern_of_leaving_that_the_thresholds_allow(n: int) -> None:
    made, described = loose_session(n)
    for pattern in patterns(n, n - majority(n, 0)):
        run = server(made, described, policy=relaxed(n))
        run.run({made.ids[place]: stage for place, stage in pattern.items()})
        found = run.require_exact()
        in_sum = {place for place in range(n) if pattern.get(place, Phase.UNMASK) > Phase.MASKED}
        assert found.survivors == tuple(made.ids[place] for place in sorted(in_sum)), pattern
        assert not run.refusals


@pytest.mark.parametrize("n", [6, 7, 8, 9, 10, 11, 12, 20])
def test_sums_of_more_sites(n: int) -> None:
    made = federation(n)
    run = server(made, session(made))
    run.run()
    assert run.require_exact().survivors == made.ids


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_drawn_patterns_are_exact_or_fail_for_want_of_sites(data: st.DataObject) -> None:
    n = data.draw(st.integers(5, 12), label="n")
    made = federation(n)
    described = session(
        made,
        ring=data.draw(st.sampled_from([Ring.W32, Ring.W64])),
        suite=data.draw(st.sampled_from(list(Suite))),
        weighted=(weighted := data.draw(st.booleans())),
        scale=64.0,
        num_coordinates=data.draw(st.integers(1, 9)),
    )
    weights = {site: data.draw(st.integers(1, 1024)) for site in made.ids} if weighted else None
    leaving = data.draw(
        st.dictionaries(st.integers(0, n - 1), st.sampled_from(STAGES), max_size=n // 2), label="leaving"
    )
    leaves = {made.ids[place]: stage for place, stage in leaving.items()}
    run = server(made, described, weights=weights, policy=SumPolicy(), seed=n)
    left = {stage: n - sum(last <= stage for last in leaves.values()) for stage in STAGES}
    enough = (
        left[Phase.SHARES] >= max(described.min_sites, described.share_threshold(left[Phase.KEYS]))
        and left[Phase.MASKED] >= described.needed_survivors
        and left[Phase.ACKS] >= described.needed_acks
        and left[Phase.UNMASK] >= described.share_threshold(left[Phase.KEYS])
    )
    if not enough:
        with pytest.raises(SecureSumFailed) as caught:  # noqa: PT012 (whichever of the two comes to it)
            run.run(leaves)
            run.result()
        assert caught.value.reason == "too-few"
        return
    run.run(leaves)
    run.require_exact()


@pytest.mark.parametrize("stage", STAGES)
def test_as_many_leave_at_one_stage_as_may(stage: Phase) -> None:
    made = federation(10)
    run = server(made, session(made))
    run.run(dict.fromkeys(made.ids[1:4], stage))
    assert len(run.require_exact().survivors) == (10 if stage > Phase.MASKED else 7)


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, 64])
def test_sixty_four_sites_of_whom_some_leave(n: int) -> None:
    made = federation(n)
    run = server(made, session(made, num_coordinates=3))
    run.run(dict(zip(made.ids[::5], [*STAGES, *STAGES][: len(made.ids[::5])], strict=False)))
    run.require_exact()


def test_a_ring_of_neighbours_sums_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sparse graph, in small: from 17 sites instead of 257."""
    monkeypatch.setattr(graph, "COMPLETE_UP_TO", 16)
    made = federation(30)
    degree, colluders = 10, 1
    described = session(made, colluders=colluders, degree=degree, min_survivors=15)
    assert described.threshold == share_threshold(30, colluders, degree) == 8
    run = server(made, described, policy=SumPolicy(colluding_percent=3))
    run.run({made.ids[3]: Phase.SHARES, made.ids[17]: Phase.MASKED, made.ids[28]: Phase.UNMASK})
    assert all(len(run.collection.graph.neighbours(site)) == degree for site in run.collection.keys)
    assert len(run.require_exact().survivors) == 28


def test_two_hundred_rounds_are_all_exact() -> None:
    """Others broke after some seventy."""
    made, described = loose_session(3, num_coordinates=5)
    for number in range(200):
        run = server(made, replace(described, round=number), policy=relaxed(3), seed=number)
        run.run({made.ids[number % 3]: STAGES[number % 5]})
        run.require_exact()


def test_the_mean_is_near_the_mean_of_the_updates() -> None:
    made = federation(6)
    weights = dict(zip(made.ids, (1, 5, 9, 2, 1000, 7), strict=True))
    run = server(made, session(made, weighted=True, ring=Ring.W64, scale=2.0**20), weights=weights)
    run.run()
    expected = np.average([run.updates[site] for site in made.ids], axis=0, weights=list(weights.values()))
    assert np.allclose(run.result().mean_D(), expected, atol=2e-6)


def test_the_words_sent_look_nothing_like_the_update() -> None:
    """A masked update of zeros: its words are spread over the whole ring, and differ between sites."""
    made = federation(5)
    run = server(made, session(made, num_coordinates=4000))
    run.updates = {site: np.zeros(4000, np.float32) for site in made.ids}
    run.run()
    rows = [row.astype(np.float64) / 2**32 for row in run.rows.values()]
    for row in rows:
        counts, _ = np.histogram(row, 16, (0, 1))
        assert ((counts - 250) ** 2 / 250).sum() < 50  # chi-square, 15 degrees, p < 2e-5
    assert abs(np.corrcoef(rows)[~np.eye(5, dtype=bool)]).max() < 0.08
    assert not run.require_exact().sum_D.any()
