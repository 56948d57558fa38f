"""What a server and the sites that collude with it see of sketches is no more than products and the selected sum."""

from __future__ import annotations

import os

import numpy as np
import pytest
from foedus.privacy.secagg.dealing import Dealing, dealt, products, shares_of, sums
from foedus.privacy.sharing.field import Elements, P, interpolation, matrix_product
from foedus.privacy.sharing.packing import Packing

RUNS, BINS, LENGTH = 600, 8, 4
MEMBERS = tuple(bytes([place]) * 16 for place in range(5))
COLLUDER, HONEST = MEMBERS[0], MEMBERS[1:]
PACKING = Packing(5, 1, 1, 0, 1)  # T = 1, E = 1
# The colluder's sketch and those of the honest, in two worlds that have the same products and the same sum.
WORLDS = [
    np.array([[1, 1, 0, 0], [5, -1, 2, 9], [0, 4, 4, -3], [2, 4, 1, 1]]),
    np.array([[1, 1, 0, 0], [-1, 5, 9, 2], [4, 0, -3, 4], [4, 2, 1, 1]]),
]
DEALERS = MEMBERS[:4]
CRITICAL = 56.0  # of BINS - 1 degrees of freedom, exceeded with probability 1e-9


def world(sketches_NL: np.ndarray, mask_dealers: tuple[bytes, ...]) -> np.ndarray:
    """Everything that the server has and can work out with the colluder's help, in each of many sessions."""
    dealing = Dealing(MEMBERS, PACKING, LENGTH, mask_dealers)
    seen = []
    for _ in range(RUNS):
        boxes = {
            dealer: dealt(dealing, dealer, sketch_L, os.urandom)
            for dealer, sketch_L in zip(DEALERS, sketches_NL, strict=True)
        }
        seen.append(transcript(dealing, boxes))
    return np.array(seen)


def transcript(dealing: Dealing, boxes: dict[bytes, Elements]) -> Elements:
    """The answers, what the colluder holds, and an attempt at a holder's bare share of a product."""
    answers = [products(dealing, held(boxes, place), {}, b"a" * 32, b"c" * 32) for place in range(5)]
    summed = [
        sums(dealing, {dealer: shares_of(dealing, box_B) for dealer, box_B in held(boxes, place).items()}, WEIGHTS)
        for place in range(5)
    ]
    return np.concatenate(
        [
            *(np.concatenate([one.products_A, one.degrees_N, one.masks_Z]) for one in answers),
            *summed,
            *(held(boxes, 0)[dealer][:LENGTH] for dealer in DEALERS[1:]),
            np.array([bare(dealing, boxes, answers[place].products_A, place) for place in range(1, 5)], np.uint64),
        ]
    )


WEIGHTS = dict.fromkeys(DEALERS, 1)


def held(boxes: dict[bytes, Elements], place: int) -> dict[bytes, Elements]:
    return {dealer: rows[place] for dealer, rows in boxes.items()}


def bare(dealing: Dealing, boxes: dict[bytes, Elements], products_A: Elements, place: int) -> int:
    """⟨own share, share of the site 1⟩ at a holder, less all that the colluder knows of it.

    The share of the site 1 lies on the line from its sketch through the colluder's share, and the colluder knows its
    own line: without masks, what is left is the sketch's product with a vector of the colluder's choice.
    """
    points = dealing.packing.holder_points()
    at_sketch, at_colluder = interpolation([1, points[0]], [points[place]])[0].tolist()
    own_L = boxes[COLLUDER][place][:LENGTH].tolist()
    known = sum(a * b for a, b in zip(boxes[HONEST[0]][0][:LENGTH].tolist(), own_L, strict=True)) * at_colluder
    mask = int(boxes[COLLUDER][place][LENGTH + 1 + 1]) if COLLUDER in dealing.mask_dealers else 0
    left = (int(products_A[1]) - known - mask) * pow(at_sketch, -1, P) % P
    # Over the colluder's own line that is a product with a uniform vector; to see a difference, take off what the
    # first world would give.
    first = sum(int(a) * b for a, b in zip(WORLDS[0][1].tolist(), own_L, strict=True))
    return (left - first) % P


def chi_squared(left: Elements, right: Elements) -> np.ndarray:
    counts = [
        np.stack([(runs // np.uint64(P // BINS + 1) == part).sum(axis=0) for part in range(BINS)])
        for runs in (left, right)
    ]
    both = counts[0] + counts[1]
    return np.asarray(((counts[0] - counts[1]) ** 2 / np.maximum(both, 1)).sum(axis=0))


def test_the_worlds_are_told_apart_by_nothing_that_may_be_known() -> None:
    first, second = WORLDS
    np.testing.assert_array_equal(first @ first.T, second @ second.T)
    np.testing.assert_array_equal(first.sum(axis=0), second.sum(axis=0))
    assert not np.array_equal(first, second)


def test_with_one_honest_mask_dealer_the_worlds_look_the_same() -> None:
    apart = chi_squared(*(world(sketches_NL, (COLLUDER, HONEST[1])) for sketches_NL in WORLDS))
    assert len(apart) > 100
    assert apart.max() < CRITICAL


def test_with_the_colluders_masks_alone_they_do_not() -> None:
    """Why even a single block needs masks, and T + 1 sites to deal them."""
    apart = chi_squared(*(world(sketches_NL, (COLLUDER,)) for sketches_NL in WORLDS))
    assert apart.max() > 10 * CRITICAL


@pytest.mark.parametrize("degree", [1, 2])
def test_answers_lie_on_polynomials_of_their_degree_and_no_lower(degree: int) -> None:
    dealing = Dealing(MEMBERS, PACKING, LENGTH, DEALERS[:2])
    boxes = {dealer: dealt(dealing, dealer, WORLDS[0][0], os.urandom) for dealer in DEALERS}
    answers = [products(dealing, held(boxes, place), {}, b"a" * 32, b"c" * 32) for place in range(5)]
    values_HA = np.array([one.degrees_N if degree == 1 else one.products_A for one in answers])
    points = dealing.packing.holder_points()
    for used, fits in ((degree, False), (degree + 1, True)):
        expected = matrix_product(interpolation(points[:used], points[used:]), values_HA[:used])
        assert bool((expected == values_HA[used:]).all()) is fits
