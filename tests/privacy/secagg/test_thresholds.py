"""Thresholds and the graph: the inequalities by brute force, the published figures, and a ring that nobody chooses."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from foedus.privacy.secagg.graph import COMPLETE_UP_TO, Graph, graph_of
from foedus.privacy.secagg.thresholds import majority, most_colluders, most_marked, ring_degree, share_threshold
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(("n", "t"), [(10, 7), (20, 13), (50, 31)])
def test_the_complete_graph_s_thresholds(n: int, t: int) -> None:
    assert share_threshold(n, n // 5, 0) == majority(n, n // 5) == t


@given(st.integers(1, 300), st.integers(0, 100))
def test_two_majorities_share_an_honest_site(n: int, c: int) -> None:
    """2t - n is the least that two sets of t have in common; it is more than collude. One less would not do."""
    t = majority(n, c)
    assert 2 * t - n > c
    assert 2 * (t - 1) - n <= c


@pytest.mark.parametrize(
    ("n", "c", "dropouts", "degree", "t"),
    [(500, 50, 50, 144, 112), (1000, 100, 100, 178, 137), (1000, 200, 100, 264, 212), (10_000, 1000, 1000, 226, 172)],
)
def test_the_ring_s_published_figures(n: int, c: int, dropouts: int, degree: int, t: int) -> None:
    assert ring_degree(n, c, dropouts) == degree
    assert share_threshold(n, c, degree) == t


def test_a_ring_that_cannot_be_safe_is_none() -> None:
    assert ring_degree(300, 150, 100) == 0


@settings(max_examples=40)
@given(st.integers(4, 40), st.data())
def test_tails_are_exact(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n - 1))
    draws = data.draw(st.integers(1, n - 1))
    bits = data.draw(st.integers(0, 20))

    def above(m: int) -> Fraction:
        ways = sum(comb(c, x) * comb(n - 1 - c, draws - x) for x in range(m + 1, draws + 1) if x <= c)
        return Fraction(ways, comb(n - 1, draws))

    expected = next(m for m in range(draws + 1) if n * above(m) < Fraction(1, 2**bits))
    assert most_marked(n, c, draws, bits) == expected


def test_most_colluders_is_all_of_them_where_they_are_few() -> None:
    assert most_colluders(300, 3, 50) == 3
    assert most_colluders(300, 0, 50) == 0


def test_more_colluders_than_sites_are_a_number_too() -> None:
    """A server may offer any; a site must come to an inequality, and not to an error."""
    assert most_colluders(300, 299, 50) == most_colluders(300, 300, 50) == most_colluders(300, 2**32 - 1, 50) == 50


def ids(n: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(n)]


def test_up_to_256_sites_everybody_is_a_neighbour() -> None:
    sites = ids(COMPLETE_UP_TO)
    graph = graph_of(sites, b"s" * 32, [b""] * len(sites), 100)
    assert graph.neighbours(sites[3]) == tuple(sites[:3] + sites[4:])
    assert graph.holders(sites[3]) == tuple(sites)


def test_a_ring_has_neighbours_on_either_side() -> None:
    sites = ids(9)
    graph = Graph(tuple(sites), 4)
    assert graph.neighbours(sites[0]) == (sites[1], sites[2], sites[7], sites[8])
    assert graph.holders(sites[8]) == (sites[0], sites[1], sites[6], sites[7], sites[8])


@settings(max_examples=10, deadline=None)
@given(st.integers(257, 400), st.integers(4, 30), st.binary(min_size=8, max_size=8))
def test_neighbours_are_mutual_and_hang_on_every_key(n: int, half: int, noise: bytes) -> None:
    sites, bodies = ids(n), [bytes([number % 256]) + noise for number in range(n)]
    graph = graph_of(sites, b"s" * 32, bodies, 2 * half)
    assert sorted(graph.order) == sites
    around = {site: graph.neighbours(site) for site in sites}
    assert all(len(near) == 2 * half for near in around.values())
    assert all(site in around[other] for site, near in around.items() for other in near)
    assert graph_of(sites, b"s" * 32, bodies, 2 * half) == graph
    changed = [*bodies[:-1], b"other"]
    assert graph_of(sites, b"s" * 32, changed, 2 * half).order != graph.order
    assert graph_of(sites, b"t" * 32, bodies, 2 * half).order != graph.order


def test_every_order_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foedus.privacy.secagg.graph.COMPLETE_UP_TO", 2)
    seen: dict[tuple[bytes, ...], int] = {}
    for number in range(2400):
        order = graph_of(ids(4), number.to_bytes(32, "big"), [b""] * 4, 2).order
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert sum((count - 100) ** 2 / 100 for count in seen.values()) < 55  # chi-square, 23 degrees, p < 0.0002


def test_three_sets_of_a_majority_leave_no_room() -> None:
    """By hand for n = 5, c = 1: no two disjoint-but-for-colluders sets reach t = 4, and two do for t = 3."""
    sites, colluder = set(range(5)), 0
    for t, possible in ((majority(5, 1), False), (majority(5, 1) - 1, True)):
        sets = [set(chosen) for chosen in combinations(sites, t)]
        assert any((one & other) <= {colluder} for one in sets for other in sets) is possible
