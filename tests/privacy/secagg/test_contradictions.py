"""Contradictions between sites: liars cost themselves, and each at most one honest site."""

from __future__ import annotations

from foedus.privacy.secagg.contradictions import settle
from hypothesis import given
from hypothesis import strategies as st

SITES = [bytes([number]) * 16 for number in range(12)]


def test_a_site_that_contradicts_more_than_can_lie_is_out_alone() -> None:
    outcome = settle((), {(dealer, SITES[4]) for dealer in SITES}, 2)
    assert outcome.liars == {SITES[4]}
    assert outcome.pairs == ()


def test_a_single_contradiction_puts_both_out() -> None:
    outcome = settle((), {(SITES[1], SITES[4])}, 2)
    assert outcome.liars == frozenset()
    assert outcome.out == {SITES[1], SITES[4]}
    assert outcome.num_liars == 1


def test_a_known_liar_lowers_what_the_others_may_be_accused_of() -> None:
    """Of two liars one is known: who contradicts two others is the second."""
    contradictions = {(SITES[1], SITES[2]), (SITES[1], SITES[3])}
    assert settle((SITES[0],), contradictions, 2).liars == {SITES[0], SITES[1]}
    assert settle((), contradictions, 2).liars == frozenset()


def test_a_site_that_contradicts_itself_lies() -> None:
    assert settle((), {(SITES[2], SITES[2])}, 2).liars == {SITES[2]}


@given(st.data())
def test_no_contradiction_is_left_in_and_each_liar_takes_one_honest_site_at_most(data: st.DataObject) -> None:
    most = data.draw(st.integers(0, 4))
    liars = set(data.draw(st.lists(st.sampled_from(SITES), max_size=most, unique=True)))
    two = st.tuples(st.sampled_from(SITES), st.sampled_from(SITES))
    drawn = data.draw(st.sets(two, max_size=40))
    contradictions = {pair for pair in drawn if liars & set(pair) and (pair[0] != pair[1] or pair[0] in liars)}
    known = data.draw(st.sets(st.sampled_from(sorted(liars)))) if liars else set()
    outcome = settle(known, contradictions, most)
    assert all(set(pair) & outcome.out for pair in contradictions)
    assert outcome.liars <= liars
    assert all(set(pair) & liars for pair in outcome.pairs)
    assert outcome.num_liars <= len(liars)
    assert len(outcome.out - liars) <= len(liars)
