"""The whole of the arithmetic on shares: from updates to the Gram matrix, the selection and the sum."""

from __future__ import annotations

import os

import numpy as np
import pytest
from by_definition import geometry, uniform
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.krum import MultiKrum
from foedus.errors import InvalidUpdate, QuorumNotMet
from foedus.privacy.sharing.dealers import judge_degrees, judge_masks
from foedus.privacy.sharing.field import P, add
from foedus.privacy.sharing.packing import Packing
from foedus.privacy.sharing.products import Products, assembled
from foedus.privacy.sharing.selection import implausible, squared_distances
from foedus.privacy.sharing.sums import WeightedSum, summed
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_updates import Dealt, dealt, packings

CASES = [
    Packing(10, 2, 2, 1, 1),
    Packing(20, 4, 4, 1, 2),
    Packing(40, 8, 8, 3, 3),
    Packing(10, 1, 2, 1, 2),
    Packing(20, 1, 4, 1, 5),
    Packing(50, 1, 10, 5, 12),
]


def honest_and_reversed(n: int, d: int, f: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    updates_ND = np.rint(2 * rng.standard_normal(d) + 3 * rng.standard_normal((n, d))).astype(np.int64)
    updates_ND[:f] *= -3
    return updates_ND


def products(round_: Dealt, holders: list[int]) -> Products | None:
    return assembled(round_.packing, round_.dealers, holders, round_.products(holders), os.urandom)


def weighted_sum(round_: Dealt, holders: list[int], weights: list[int], length: int) -> WeightedSum | None:
    answers = round_.sums(holders, weights)
    return summed(round_.packing, length, 10**9, holders, answers, os.urandom)


@pytest.mark.parametrize("packing", CASES, ids=str)
def test_gram_selection_and_sum_are_those_in_the_clear(packing: Packing) -> None:
    n, d = packing.holders, 403
    f = (n - 3) // 4
    updates_ND = honest_and_reversed(n, d, f)
    round_ = dealt(packing, updates_ND)
    rng = np.random.default_rng(n)
    order = rng.permutation(n).tolist()
    holders = sorted(order[packing.dropouts :])
    liars = sorted(order[-packing.liars :])
    round_.lies = {liar: 1 + int(rng.integers(2**60)) for liar in liars}

    found = products(round_, holders)
    assert found is not None
    assert found.liars == tuple(liars)
    np.testing.assert_array_equal(found.gram_NN, updates_ND @ updates_ND.T)

    limit = int(found.gram_NN.diagonal().max())
    assert implausible(found.gram_NN, limit, n - 1) == ()
    secure = MultiKrum(f).judge(Geometry(squared_distances(found.gram_NN, limit)), uniform(n))
    assert secure.selected == MultiKrum(f).judge(geometry(updates_ND), uniform(n)).selected
    assert min(secure.selected) >= f

    weights = [int(rng.integers(1, 1025)) if i in secure.selected else 0 for i in range(n)]
    total = weighted_sum(round_, holders, weights, d)
    assert total is not None
    assert total.liars == tuple(liars)
    np.testing.assert_array_equal(total.sum_D, np.array(weights) @ updates_ND)


@settings(max_examples=25, deadline=None)
@given(packings(), st.data())
def test_whoever_drops_out_or_lies_the_results_are_exact(packing: Packing, data: st.DataObject) -> None:
    n, d = data.draw(st.integers(1, packing.holders)), data.draw(st.integers(1, 7))
    values = st.lists(st.integers(-(2**20), 2**20), min_size=n * d, max_size=n * d)
    updates_ND = np.array(data.draw(values)).reshape(n, d)
    order = data.draw(st.permutations(range(packing.holders)))
    holders = order[packing.dropouts :]
    liars = order[: data.draw(st.integers(0, packing.liars))]
    round_ = dealt(packing, updates_ND)
    round_.lies = {liar: data.draw(st.integers(1, P - 1)) for liar in liars}
    found = products(round_, holders)
    assert found is not None
    assert set(found.liars) == set(liars) & set(holders)
    np.testing.assert_array_equal(found.gram_NN, updates_ND @ updates_ND.T)
    weights = data.draw(st.lists(st.integers(0, 1024), min_size=n, max_size=n))
    total = summed(packing, d, 2**40, holders, round_.sums(holders, weights), os.urandom)
    assert total is not None
    np.testing.assert_array_equal(total.sum_D, np.array(weights) @ updates_ND)


@pytest.mark.parametrize("packing", CASES[:2] + CASES[3:5], ids=str)
def test_one_liar_more_leaves_nothing_decodable(packing: Packing) -> None:
    round_ = dealt(packing, honest_and_reversed(packing.holders, 40, 0))
    holders = list(range(packing.dropouts, packing.holders))
    round_.lies = {holder: 1000 + holder**3 for holder in holders[: packing.liars + 1]}
    assert products(round_, holders) is None


def test_a_sum_has_more_room_for_liars_but_takes_no_more() -> None:
    # A share has half the degree of a product, so that more lies could be decoded; E is what was agreed.
    packing = Packing(10, 2, 2, 1, 1)
    round_ = dealt(packing, honest_and_reversed(10, 40, 0))
    round_.lies = {0: 5, 1: 77}
    assert weighted_sum(round_, list(range(10)), [1] * 10, 40) is None


def test_more_drop_outs_than_agreed_end_the_round() -> None:
    packing = Packing(10, 2, 2, 1, 1)
    round_ = dealt(packing, honest_and_reversed(10, 40, 0))
    for answer in (products, lambda *args: weighted_sum(*args, [1] * 10, 40)):
        assert answer(round_, list(range(9))) is not None
        with pytest.raises(QuorumNotMet, match="8 of 10 holders answered, expected at least 9"):
            answer(round_, list(range(8)))


def test_a_sum_beyond_what_short_updates_can_reach_is_refused() -> None:
    packing = Packing(10, 2, 2, 1, 1)
    updates_ND = honest_and_reversed(10, 40, 0)
    round_ = dealt(packing, updates_ND)
    holders = list(range(10))
    largest = int(np.abs(updates_ND.sum(axis=0)).max())
    answers = round_.sums(holders, [1] * 10)
    assert summed(packing, 40, largest, holders, answers, os.urandom) is not None
    with pytest.raises(InvalidUpdate, match="not short"):
        summed(packing, 40, largest - 1, holders, answers, os.urandom)


def test_honest_dealers_pass_and_a_lying_holder_is_in_dispute_with_all() -> None:
    packing = Packing(10, 2, 2, 1, 1)
    round_ = dealt(packing, honest_and_reversed(10, 40, 0))
    round_.lies = {4: 1}
    holders = list(range(1, 10))
    for judgement in (
        judge_degrees(packing, holders, round_.degrees(holders)),
        judge_masks(packing, holders, round_.masks(holders)),
    ):
        assert judgement.bad == ()
        assert {holder for _, holder in judgement.disputes} == {4}
    assert len(judge_degrees(packing, holders, round_.degrees(holders)).disputes) == 10
    with pytest.raises(QuorumNotMet):
        judge_degrees(packing, holders[1:], round_.degrees(holders[1:]))


@pytest.mark.adversarial
def test_shares_of_too_high_a_degree_are_the_dealers_fault() -> None:
    packing = Packing(10, 2, 2, 1, 1)
    round_ = dealt(packing, honest_and_reversed(10, 40, 0))
    holders = list(range(10))
    # One degree more, in one column only: x^4 at the holders' points.
    points = np.array(packing.holder_points(), np.uint64)
    round_.shares_NHL[3, :, 11] = add(round_.shares_NHL[3, :, 11], points ** np.uint64(packing.degree + 1))
    judgement = judge_degrees(packing, holders, round_.degrees(holders))
    assert judgement.bad == (3,)
    # Without the test nobody would be named: the products are undecodable, whoever it is.
    assert products(round_, holders) is None


@pytest.mark.adversarial
def test_a_dealer_that_sends_one_holder_something_else_is_in_dispute_with_it() -> None:
    packing = Packing(10, 2, 2, 1, 1)
    round_ = dealt(packing, honest_and_reversed(10, 40, 0))
    round_.shares_NHL[3, 7, 0] ^= np.uint64(1)
    holders = list(range(10))
    judgement = judge_degrees(packing, holders, round_.degrees(holders))
    assert judgement.bad == ()
    assert judgement.disputes == ((3, 7),)


@pytest.mark.adversarial
def test_masks_that_do_not_add_up_to_zero_are_the_dealers_fault() -> None:
    packing = Packing(10, 2, 2, 1, 1)
    updates_ND = honest_and_reversed(10, 40, 0)
    round_ = dealt(packing, updates_ND)
    # A constant, so of a fine degree, that adds 2000 to one product.
    round_.masks_ZHA[2, :, 5] = add(round_.masks_ZHA[2, :, 5], np.uint64(1000))
    holders = list(range(10))
    assert judge_masks(packing, holders, round_.masks(holders)).bad == (2,)
    # Without the test it would go unnoticed.
    found = products(round_, holders)
    assert found is not None
    assert found.liars == ()
    assert (found.gram_NN - updates_ND @ updates_ND.T)[0, 5] == 2000


@pytest.mark.adversarial
def test_masks_of_too_high_a_degree_are_the_dealers_fault() -> None:
    packing = Packing(10, 2, 2, 1, 1)
    round_ = dealt(packing, honest_and_reversed(10, 40, 0))
    points = np.array(packing.holder_points(), np.uint64)
    round_.masks_ZHA[0, :, 5] = add(round_.masks_ZHA[0, :, 5], points ** np.uint64(packing.product_degree + 1))
    holders = list(range(10))
    assert judge_masks(packing, holders, round_.masks(holders)).bad == (0,)
