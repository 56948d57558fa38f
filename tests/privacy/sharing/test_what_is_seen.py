"""What the server sees is no more than it is told: the products of whole vectors, and the chosen sum."""

from __future__ import annotations

import os

import numpy as np
from foedus.privacy.sharing.dealers import degree_answers, mask_answers
from foedus.privacy.sharing.field import Elements, P, add, from_integers, inner_products, negate, total, uniform
from foedus.privacy.sharing.packing import (
    Packing,
    at_data_points,
    deal,
    degree_masks,
    hidden,
    zero_sum_masks,
)
from foedus.privacy.sharing.products import pair_count
from foedus.privacy.sharing.sums import sum_answers
from shared_updates import stream

RUNS = 1000
BINS = 8
HOLDERS = 5
PACKING = Packing(HOLDERS, 2, 1)  # degree 2, products 4: just enough holders
DEALERS = 3
# With the columns in another order, blocks have other products but vectors the same, and the sum stays all sevens.
UPDATES = np.array([[5, -1, 2, 9], [0, 4, 4, -3], [2, 4, 1, 1]])
REORDERED = UPDATES[:, [0, 2, 1, 3]]


def transcripts(updates_ND: np.ndarray, *, masked: bool) -> np.ndarray:
    """What the server is sent and can decode from it, in each of the runs: RUNS x quantities."""
    pairs, upper = pair_count(DEALERS), np.triu_indices(DEALERS)
    # The runs lie side by side as columns of one dealing.
    shares_NHC = np.array(
        [
            deal(PACKING, hidden(PACKING, np.tile(from_integers(update_D).reshape(2, -1), RUNS), os.urandom))
            for update_D in updates_ND
        ]
    )
    masks_HRA = zero_sum_masks(PACKING, pairs * RUNS, os.urandom).reshape(HOLDERS, RUNS, pairs)
    hiding_HR = zero_sum_masks(PACKING, RUNS, os.urandom)
    degree_HRN = degree_masks(PACKING, DEALERS * RUNS, os.urandom)
    no_bits = np.zeros((RUNS * DEALERS, 0), np.uint64)
    products, degrees, masks, sums = [], [], [], []
    for holder in range(HOLDERS):
        shares_RNL = shares_NHC[:, holder].reshape(DEALERS, RUNS, -1).transpose(1, 0, 2)
        products_RA = np.array([inner_products(shares_NL, shares_NL)[upper] for shares_NL in shares_RNL])
        products.append(add(products_RA, masks_HRA[holder]) if masked else products_RA)
        rows = shares_RNL.reshape(RUNS * DEALERS, -1)
        degrees.append(degree_answers(rows, no_bits, degree_HRN[holder], stream("rho")))
        masks.append(mask_answers(masks_HRA[holder], hiding_HR[holder], stream("mu")))
        sums.append(sum_answers(shares_NHC[:, holder], np.ones(DEALERS, np.int64)))
    sent = [np.array(answers).reshape(HOLDERS, RUNS, -1) for answers in (products, degrees, masks, sums)]
    # What the server may try: to decode products of blocks and combinations of blocks, and to take off the products
    # what the test of the masks says of the masks.
    tested = inner_products(sent[0].reshape(HOLDERS * RUNS, -1), uniform(stream("mu"), 1, pairs))
    unmasked = add(tested.reshape(HOLDERS, RUNS, 1), negate(sent[2]))
    for answers, degree in ((sent[0], 4), (sent[1], 2), (unmasked, 4)):
        decoded = at_data_points(PACKING, range(HOLDERS), answers.reshape(HOLDERS, -1), degree)
        sent.append(decoded.reshape(PACKING.blocks, RUNS, -1))
    return np.hstack([of_runs for answers in sent for of_runs in answers])


def chi_squared(left: Elements, right: Elements) -> np.ndarray:
    """For each quantity, how far apart its two histograms over equal parts of the field are."""
    counts = [
        np.stack([(runs // np.uint64(P // BINS + 1) == part).sum(axis=0) for part in range(BINS)])
        for runs in (left, right)
    ]
    both = counts[0] + counts[1]
    return ((counts[0] - counts[1]) ** 2 / np.maximum(both, 1)).sum(axis=0)


# Of BINS - 1 degrees of freedom, exceeded with probability 1e-9; some hundred quantities are looked at.
CRITICAL = 56.0


def test_updates_with_the_same_products_and_sum_look_the_same() -> None:
    np.testing.assert_array_equal(UPDATES @ UPDATES.T, REORDERED @ REORDERED.T)
    np.testing.assert_array_equal(UPDATES.sum(axis=0), REORDERED.sum(axis=0))
    seen = [transcripts(updates_ND, masked=True) for updates_ND in (UPDATES, REORDERED)]
    apart = chi_squared(*seen)
    assert len(apart) > 50
    assert apart.max() < CRITICAL
    # Nor do two quantities together tell them apart: sums of neighbours.
    assert chi_squared(*(add(runs, np.roll(runs, 1, axis=1)) for runs in seen)).max() < CRITICAL


def test_without_masks_the_products_of_blocks_tell_them_apart() -> None:
    seen = [transcripts(updates_ND, masked=False) for updates_ND in (UPDATES, REORDERED)]
    assert chi_squared(*seen).max() > CRITICAL


def test_one_honest_dealer_of_masks_makes_what_is_decoded_uniform_given_its_sum() -> None:
    # The polynomial that hides: any values at all data points but one, and at the further points that fix it.
    masks = zero_sum_masks(PACKING, 20_000, os.urandom)
    at = at_data_points(PACKING, range(HOLDERS), masks, 4)
    assert not total(at).any()
    free = np.stack([at[0], *masks[:3]])
    everywhere = np.stack([uniform(os.urandom, 20_000) for _ in range(4)])
    assert chi_squared(free.T, everywhere.T).max() < CRITICAL
