"""Groups and what is wrong with them: a partition that nobody chooses, in whole numbers."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg.descriptor import Mode, next_attempt
from foedus.privacy.secagg.grouping import (
    colluders_in_group,
    cut,
    fewest_groups,
    fewest_in_group,
    group_sizes,
    group_threshold,
    grouping_fault,
    groups_left,
    num_groups,
)
from foedus.privacy.secagg.groups import group_session, group_sessions, groups_of
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring
from foedus.privacy.secagg.thresholds import majority
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from secure_groups import grouped, policy
from secure_sums import federation

MADE = federation(25)
BASE = grouped(MADE, 5)


@given(st.integers(1, 200), st.data())
def test_groups_are_a_partition_into_sizes_that_differ_by_one(n: int, data: st.DataObject) -> None:
    g = data.draw(st.integers(1, n))
    sizes = group_sizes(n, g)
    assert sum(sizes) == n
    assert len(sizes) == num_groups(n, g) == n // g
    assert min(sizes) >= g
    assert max(sizes) - min(sizes) <= 1
    order = [number.to_bytes(16, "big") for number in range(n)]
    groups = cut(order[::-1], g)
    assert sorted(site for group in groups for site in group) == order
    assert all(list(group) == sorted(group) for group in groups)
    assert tuple(map(len, groups)) == sizes


def test_the_order_by_another_hand() -> None:
    """Fisher-Yates over AES-256-CTR words of four bytes, keyed by federation and run."""
    seed = hashlib.sha256(b"fl-sa/v1/groups" + b"\x06hearts" + b"\x06spring").digest()
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor().update(bytes(400))
    order, at = list(MADE.ids), 0
    for last in range(24, 0, -1):
        word = int.from_bytes(stream[at : at + 4], "little")
        assert word < 2**32 - 2**32 % (last + 1)  # none is drawn again here
        order[last], order[word % (last + 1)] = order[word % (last + 1)], order[last]
        at += 4
    assert groups_of(BASE) == tuple(tuple(sorted(order[start : start + 5])) for start in range(0, 25, 5))


def test_fixed_groups_hang_on_the_run_alone() -> None:
    same: dict[str, Any] = {
        "round": 9,
        "attempt": 4,
        "model_digest": bytes(32),
        "config_digest": bytes(32),
        "roster_digest": bytes(32),
        "deadlines_seconds": (1, 2, 3, 4, 5),
        "ring": Ring.W64,
        "scale": 2.0,
    }
    for name, value in same.items():
        assert groups_of(replace(BASE, **{name: value})) == groups_of(BASE)
    for name in ("run", "federation"):
        assert groups_of(replace(BASE, **{name: "other"})) != groups_of(BASE)


def test_groups_that_change_hang_on_the_round_and_not_on_the_attempt() -> None:
    changing = replace(BASE, regroups=True)
    drawn = {groups_of(replace(changing, round=number)) for number in range(20)} | {groups_of(BASE)}
    assert len(drawn) == 21
    assert groups_of(replace(changing, attempt=2)) == groups_of(changing)


def test_another_attempt_has_the_same_groups_whoever_is_left_out() -> None:
    again = next_attempt(BASE, without=MADE.ids[:3])
    assert again.attempt == 2
    assert groups_of(again) == groups_of(BASE)
    assert {one.sid for one in group_sessions(again)}.isdisjoint(one.sid for one in group_sessions(BASE))


def test_every_partition_is_as_likely() -> None:
    made = federation(6)
    base = replace(grouped(made, 3), run="")
    seen: dict[frozenset[tuple[bytes, ...]], int] = {}
    for number in range(1000):
        drawn = frozenset(groups_of(replace(base, run=str(number))))
        seen[drawn] = seen.get(drawn, 0) + 1
    assert len(seen) == comb(6, 3) // 2
    assert sum((count - 100) ** 2 / 100 for count in seen.values()) < 36  # chi-square, 9 degrees, p < 0.0001


def test_a_group_s_session_is_bound_to_the_whole_and_to_its_number() -> None:
    sessions = group_sessions(BASE)
    for place, one in enumerate(sessions):
        bound = hashlib.sha256(b"fl-sa/v1/group" + BASE.sid + place.to_bytes(4, "big")).digest()
        assert one.config_digest == bound
        assert one.participants == groups_of(BASE)[place]
        assert (one.colluders, one.threshold, one.needed_acks) == (1, 4, 4)
        changed = {"participants", "config_digest", "colluders", "threshold"}
        assert all(getattr(one, f.name) == getattr(BASE, f.name) for f in fields(one) if f.name not in changed)
        assert all(group_session(BASE, site) == one for site in one.participants)
    other = group_sessions(replace(BASE, deadlines_seconds=(1, 2, 3, 4, 5)))
    assert len({one.sid for one in (*sessions, *other, BASE)}) == 11


# colluders in one group


@settings(max_examples=40)
@given(st.integers(2, 60), st.data())
def test_few_colluders_may_all_meet_in_a_group(n: int, data: st.DataObject) -> None:
    """As an upper bound on what can happen at all; for few sites it is met, since a server can try runs' names."""
    g, c = data.draw(st.integers(2, n)), data.draw(st.integers(0, n - 1))
    bound = colluders_in_group(n, c, g)
    beside = max(group_sizes(n, g)) - 1
    assert bound <= min(c, beside)
    above = sum(comb(c, x) * comb(n - 1 - c, beside - x) for x in range(bound + 1, min(c, beside) + 1))
    assert n * Fraction(above, comb(n - 1, beside)) < Fraction(1, 2**80)
    assert bound == min(c, beside)


def test_among_many_sites_they_do_not_all_meet() -> None:
    assert colluders_in_group(1000, 50, 50) < 30
    assert colluders_in_group(10_000, 1000, 100) < 60


def test_two_quorums_of_a_group_share_an_honest_site() -> None:
    for one in group_sessions(BASE):
        for first, second in combinations(combinations(one.participants, one.needed_acks), 2):
            assert len(set(first) & set(second)) > one.colluders
    assert group_threshold(25, 1, 0, 5) == majority(5, 1)


def test_a_larger_group_has_a_threshold_of_its_own() -> None:
    """What the session names is the smallest group's."""
    made = federation(23)
    described = grouped(made, 7)
    assert [(one.num_sites, one.threshold) for one in group_sessions(described)] == [(8, 5), (8, 5), (7, 5)]
    described = grouped(made, 8, colluders=0)
    assert [(one.num_sites, one.threshold) for one in group_sessions(described)] == [(12, 7), (11, 6)]
    assert described.threshold == 6
    policy(colluding_percent_in_groups=0).require(replace(described, min_survivors=6))


# what is wrong with a grouping


def fault(n: int, g: int, f: int, c: int = 0, rule: str = "trimmed-mean", **limits: int) -> str | None:
    return grouping_fault(n, g, byzantine=f, colluders=c, rule=rule, **limits)


@pytest.mark.parametrize(
    ("n", "g", "f", "c"), [(20, 5, 1, 0), (20, 5, 1, 2), (25, 5, 2, 1), (50, 5, 4, 2), (50, 10, 2, 5), (5, 5, 0, 1)]
)
def test_groupings_that_hold(n: int, g: int, f: int, c: int) -> None:
    assert fault(n, g, f, c) is None
    assert num_groups(n, g) >= fewest_groups(f)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (fault(20, 4, 1), "groups of 4 sites are too small to hide an update in, expected at least 5"),
        (fault(4, 5, 0), "4 sites are fewer than one group of 5"),
        (
            fault(20, 5, 2),
            "groups of 5 from 20 sites are 4 groups; 2 attackers spoil up to 2 groups, and trimmed-mean with f = 2 "
            "needs at least 5: 25 sites would be enough",
        ),
        (
            fault(30, 10, 2, rule="median"),
            "groups of 10 from 30 sites are 3 groups; 2 attackers spoil up to 2 groups, and median with f = 2 needs "
            "at least 5: make groups of at most 6",
        ),
        (
            fault(50, 5, 4, 5),
            "groups of 5 from 50 sites are 10 groups; 4 of 5 colluding sites may meet in one, which leaves 1 honest, "
            "expected at least 3: make groups larger, or assume fewer to collude",
        ),
    ],
)
def test_groupings_that_do_not_are_said_in_a_sentence(found: str | None, sentence: str) -> None:
    assert found == sentence


def by_brute_force(n: int, g: int, c: int, away: int) -> int:
    """The worst of all ways in which so many sites can be missing from the groups."""
    among, sizes = colluders_in_group(n, c, g), group_sizes(n, g)
    needed = [max(fewest_in_group(n, g, c, min_sites=3, min_honest=2), majority(size, among)) for size in sizes]
    ways = (gone for gone in product(range(away + 1), repeat=len(sizes)) if sum(gone) == away)
    possible = (gone for gone in ways if all(lost <= size for lost, size in zip(gone, sizes, strict=True)))
    return min(
        sum(size - lost >= least for size, lost, least in zip(sizes, gone, needed, strict=True)) for gone in possible
    )


@settings(max_examples=60)
@given(st.integers(4, 22), st.integers(4, 9), st.integers(0, 5), st.integers(0, 5))
def test_groups_left_by_brute_force(n: int, g: int, c: int, away: int) -> None:
    assume(g <= n)
    away = min(away, n)
    assert groups_left(n, g, c, away=away, min_sites=3, min_honest=2) == by_brute_force(n, g, c, away)


def test_sites_that_are_away_may_cost_a_group_each() -> None:
    assert groups_left(25, 5, 1, away=2) == 3
    assert groups_left(25, 5, 1, away=2, min_sites=4) == 4
    assert groups_left(30, 6, 1, away=2) == 4
    assert fault(25, 5, 1, 1, away=2) is None
    assert fault(25, 5, 2, 1, away=1) == (
        "groups of 5 from 25 sites are 5 groups; with 1 away, 1 of them can be lost, and trimmed-mean with "
        "f = 2 needs at least 5: ask more sites"
    )


def test_the_least_that_a_group_may_have_is_what_a_site_agrees_to() -> None:
    for n, g, c in ((25, 5, 1), (50, 13, 10), (50, 10, 5), (64, 16, 0)):
        least = fewest_in_group(n, g, c)
        described = replace(
            BASE,
            participants=tuple(number.to_bytes(16, "big") for number in range(n)),
            group_size=g,
            colluders=c,
            threshold=group_threshold(n, c, 0, g),
            min_sites=least,
            min_survivors=least,
        )
        wanted = policy(colluding_percent_in_groups=0)
        wanted.require(described)
        with pytest.raises(SecureSumFailed):
            wanted.require(replace(described, min_survivors=least - 1))


@given(st.integers(1, 80), st.integers(0, 30), st.integers(0, 6), st.integers(0, 100))
def test_the_sentence_is_none_just_when_a_site_agrees(n: int, g: int, f: int, c: int) -> None:
    """What a plan's check lets through, a site's own check lets through, and the other way around."""
    possible = 0 < g <= n
    least = max(5, colluders_in_group(n, c, g) + 3) if possible else 5
    described = replace(
        BASE,
        participants=tuple(number.to_bytes(16, "big") for number in range(n)),
        group_size=g,
        byzantine=f,
        colluders=c,
        threshold=group_threshold(n, c, 0, g) if possible else 0,
        min_sites=least,
        min_survivors=max(least, n),
    )
    try:
        policy(colluding_percent_in_groups=0).require(described)
    except SecureSumFailed:
        assert fault(n, g, f, c) is not None
    else:
        assert fault(n, g, f, c) is None


def test_groups_are_no_protection_by_default() -> None:
    with pytest.raises(SecureSumFailed, match="does not allow the protection 'groups'"):
        SumPolicy().require(BASE)
    assert Mode.GROUPS not in SumPolicy().modes
    for rule in ("median", "multi-krum", "mean"):  # what becomes of the sums is not a site's affair
        policy().require(replace(BASE, rule=rule))
