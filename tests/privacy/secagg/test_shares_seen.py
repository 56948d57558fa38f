"""Of shared updates nobody sees more than their products and one sum: neither blocks of them, nor in any print."""

from __future__ import annotations

import io
import logging
import os
from typing import Any

import numpy as np
import pytest
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.dealing import Dealing, dealt, products, proved, shares_of, sums
from foedus.privacy.secagg.sharing_messages import Products
from foedus.privacy.secagg.sharing_opening import add_up_shares
from foedus.privacy.secagg.signing import Kind, Signed
from foedus.privacy.sharing.field import Elements, P
from foedus.privacy.sharing.packing import Packing, at_data_points
from secure_sums import federation
from shared_sums import PHASES, ShareServer, share_server, shared
from sketched_sums import SECRET

# What a server and a colluding site see: 23 of the adversarial tests.

RUNS, BINS, LENGTH, WIDTH = 300, 6, 4, 5
MEMBERS = tuple(bytes([place]) * 16 for place in range(7))
PACKING = Packing(7, 2, 1, 0, 1)  # K = 2, T = 1, E = 1
COLLUDER, HONEST, DEALERS = MEMBERS[0], MEMBERS[1:], MEMBERS[:4]
WEIGHTS = dict(zip(DEALERS, (2, 1, 1, 3), strict=True))
# The updates of the colluder and of the honest, in two worlds with the same products and the same weighted sum: two of
# the honest have each other's. The products of single blocks differ.
WORLDS = [
    np.array([[1, 1, 1, 1], [3, 1, 0, 0], [0, 0, 3, 1], [1, 1, 1, 1]]),
    np.array([[1, 1, 1, 1], [0, 0, 3, 1], [3, 1, 0, 0], [1, 1, 1, 1]]),
]
AGREEMENT, CHALLENGE = b"a" * 32, b"c" * 32
CRITICAL = 56.0  # of BINS - 1 degrees of freedom, exceeded with probability below 1e-9


def world(updates_ND: np.ndarray, mask_dealers: tuple[bytes, ...]) -> np.ndarray:
    """What the server has and can work out with the colluder's help, in each of many sessions."""
    dealing = Dealing(MEMBERS, PACKING, LENGTH, mask_dealers, WIDTH)
    return np.array([transcript(dealing, updates_ND) for _ in range(RUNS)])


def transcript(dealing: Dealing, updates_ND: np.ndarray) -> Elements:
    by_dealer = dict(zip(DEALERS, updates_ND, strict=True))
    boxes = {dealer: dealt(dealing, dealer, update_D, os.urandom) for dealer, update_D in by_dealer.items()}
    proofs = {dealer: proved(dealing, update_D, AGREEMENT, os.urandom) for dealer, update_D in by_dealer.items()}
    answers = [
        products(dealing, held(boxes, place), held(proofs, place), AGREEMENT, CHALLENGE)
        for place in range(len(MEMBERS))
    ]
    summed = [
        sums(dealing, {dealer: shares_of(dealing, box_B) for dealer, box_B in held(boxes, place).items()}, WEIGHTS)
        for place in range(len(MEMBERS))
    ]
    places, degree = list(range(len(MEMBERS))), dealing.packing.product_degree
    blocks_KA = at_data_points(dealing.packing, places, np.array([one.products_A for one in answers]), degree)
    return np.concatenate(
        [
            *(np.concatenate([one.products_A, one.degrees_N, one.masks_Z, one.short_S]) for one in answers),
            *summed,
            *(held(boxes, 0)[dealer][:2] for dealer in DEALERS[1:]),
            *(held(proofs, 0)[dealer][:20] for dealer in DEALERS[1:]),
            blocks_KA.reshape(-1),
        ]
    )


def held(boxes: dict[bytes, Elements], place: int) -> dict[bytes, Elements]:
    return {dealer: rows[place] for dealer, rows in boxes.items()}


def chi_squared(left: Elements, right: Elements) -> np.ndarray:
    counts = [
        np.stack([(runs // np.uint64(P // BINS + 1) == part).sum(axis=0) for part in range(BINS)])
        for runs in (left, right)
    ]
    both = counts[0] + counts[1]
    return np.asarray(((counts[0] - counts[1]) ** 2 / np.maximum(both, 1)).sum(axis=0))


def distinct(left: Elements, right: Elements) -> bool:
    """Whether some value is one number in the one world, and never in the other."""
    fixed = (left == left[0]).all(axis=0)
    return bool((fixed & (right != left[0]).all(axis=0)).any())


def test_the_worlds_are_told_apart_by_nothing_that_may_be_known() -> None:
    first, second = WORLDS
    weights = np.array(list(WEIGHTS.values()))
    np.testing.assert_array_equal(first @ first.T, second @ second.T)
    np.testing.assert_array_equal(weights @ first, weights @ second)
    assert not np.array_equal(first[:, :2] @ first[:, :2].T, second[:, :2] @ second[:, :2].T)


def test_with_one_honest_mask_dealer_the_worlds_look_the_same() -> None:
    left, right = (world(updates_ND, (COLLUDER, HONEST[1])) for updates_ND in WORLDS)
    apart = chi_squared(left, right)
    assert len(apart) > 100
    assert apart.max() < CRITICAL
    assert not distinct(left, right)


def test_without_masks_the_products_of_single_blocks_show() -> None:
    """As they would where nobody deals masks that add up to zero over the blocks."""
    left, right = (world_of_zeros(updates_ND) for updates_ND in WORLDS)
    assert distinct(left, right)


def world_of_zeros(updates_ND: np.ndarray) -> np.ndarray:
    """Every mask is 0: drawn from a stream of zeros, but not what hides the updates themselves."""
    dealing = Dealing(MEMBERS, PACKING, LENGTH, (), 0)
    found = []
    for _ in range(20):
        boxes = {
            dealer: dealt(dealing, dealer, update_D, os.urandom)
            for dealer, update_D in zip(DEALERS, updates_ND, strict=True)
        }
        shares = np.array([[box_B[:2] for box_B in held(boxes, place).values()] for place in range(len(MEMBERS))])
        answers_HA = np.array([pair_products(shares_NL) for shares_NL in shares])
        places = list(range(len(MEMBERS)))
        found.append(at_data_points(PACKING, places, answers_HA, PACKING.product_degree).reshape(-1))
    return np.array(found)


def pair_products(shares_NL: Elements) -> Elements:
    rows = shares_NL.astype(object)
    return np.array([int(rows[a] @ rows[b]) % P for a in range(4) for b in range(a, 4)], np.uint64)


# What prints: 27 of the adversarial tests.

TEN = federation(10)


@pytest.fixture(scope="module")
def seen() -> tuple[ShareServer, set[bytes], str]:
    """A run with a drop-out and a liar; the secrets in it, as bytes; everything that could be printed on the way."""
    run = share_server(TEN, shared(TEN))
    secrets: set[bytes] = {SECRET.reveal_bytes()}
    log = io.StringIO()
    logger, handler = logging.getLogger("shares-under-test"), logging.StreamHandler(log)
    logger.addHandler(handler)

    def look(*more: Any) -> None:
        for site in run.sites.values():
            if site.stored is None:
                continue
            state = site.state
            secrets.update(one.reveal_bytes() for one in (state.seal_key, state.mask_key, state.seed, state.rounding))
            if (sharing := state.sharing) is not None:
                secrets.update(
                    one.reveal_bytes() for one in (sharing.vector, sharing.draw, sharing.own, sharing.own_proof)
                )
                secrets.add(sharing.summed.reveal_bytes())
                secrets.update(share.reveal_bytes() for _, share in sharing.shares)
            logger.warning("%r %s %r", state, site.stored, site.refusal)
        logger.warning("%r %r", run.collection, more)

    for phase in PHASES[:4]:
        run.to(phase, {TEN.ids[3]: Phase.CONFIRMATIONS})
        look()
    run.send_changed({TEN.ids[6]: lambda body: b"\1" + body[1:]})
    look(*run.collection.products.values())
    run.to(Phase.ACKS)
    look(run.collection.judged, run.collection.dealing)
    run.to(Phase.SUMS)
    look(add_up_shares(run.collection).survivors, run.refusals)
    logger.removeHandler(handler)
    return run, {secret for secret in secrets if secret}, log.getvalue()


def forms(secret: bytes) -> list[str]:
    """What the start of a secret could look like in a text: as Python writes bytes, in hex, as numbers."""
    head = secret[:24]
    numbers = [int.from_bytes(secret[at : at + 8], "little") for at in range(0, len(secret) - 7, 8)][:3]
    return [repr(head)[2:-1], head.hex(), *(str(one) for one in numbers if one > 10**12)]


def test_nothing_that_prints_shows_a_secret_an_update_or_a_product(seen: tuple[ShareServer, set[bytes], str]) -> None:
    run, secrets, text = seen
    assert len(secrets) > 10 * (4 + 3) + 9 * 10
    assert "Secret(…)" in text
    for secret in secrets:
        assert not any(form in text for form in forms(secret))
    judged = run.collection.judged
    assert judged is not None
    for distance in judged.squared_PP[judged.squared_PP > 0]:
        assert f"{distance:.1f}" not in text
    for answer in run.collection.products.values():
        assert not any(str(int(element)) in text for element in answer.products_A)


def test_before_the_sum_no_share_is_on_the_wire_and_products_are_masked(
    seen: tuple[ShareServer, set[bytes], str],
) -> None:
    run, secrets, _ = seen
    before = b"".join(message for site in run.sites.values() for message in site.sent if message[0] != Kind.SUM)
    for secret in secrets:
        assert secret[:64] not in before
    dealers, masking = len(run.collection.deals), len(run.collection.dealing.mask_dealers)
    for site in run.sites.values():
        for message in site.sent:
            if message[0] == Kind.PRODUCTS:
                answer = Products.from_bytes(Signed.from_bytes(message).body, dealers, masking, dealers)
                assert (answer.products_A > 1 << 50).mean() > 0.9
