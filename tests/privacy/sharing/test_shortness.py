from __future__ import annotations

import os

import numpy as np
import pytest
from by_definition import uniform
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.krum import MultiKrum
from foedus.errors import ConfigError, InvalidUpdate
from foedus.privacy.sharing.dealers import judge_degrees, judge_shortness
from foedus.privacy.sharing.field import P, add, from_integers, to_integers
from foedus.privacy.sharing.field import uniform as uniform_elements
from foedus.privacy.sharing.packing import Packing, deal
from foedus.privacy.sharing.products import assembled
from foedus.privacy.sharing.selection import squared_distances
from foedus.privacy.sharing.shortness import PROJECTIONS, bits_of, projections, width_for
from foedus.privacy.sharing.sums import summed
from shared_updates import Dealt, dealt, stream

PACKING = Packing(10, 2, 2, 1, 1)
HOLDERS = list(range(10))


def matrix_by_definition(columns: int, seed: str) -> np.ndarray:
    """128 x L: for each 1,024 columns, row by row, two bits an entry from the low end of each byte on."""
    draw, blocks = stream(seed), []
    for start in range(0, columns, 1024):
        width = min(1024, columns - start)
        rows = []
        for _ in range(PROJECTIONS):
            codes = [byte >> shift & 3 for byte in draw((width + 3) // 4) for shift in (0, 2, 4, 6)]
            rows.append([(0, 1, -1, 0)[code] for code in codes[:width]])
        blocks.append(np.array(rows))
    return np.hstack(blocks)


@pytest.mark.parametrize("columns", [1, 5, 1024, 1026, 2501])
def test_projections_are_those_by_the_public_matrix(columns: int) -> None:
    rows = uniform_elements(os.urandom, 3, columns)
    rows[0] = from_integers(np.random.default_rng(1).integers(-(2**20), 2**20, columns))
    rows[1] = P - 1
    expected = (rows.astype(object) @ matrix_by_definition(columns, "R").T.astype(object)) % P
    np.testing.assert_array_equal(projections(rows, stream("R")), expected.astype(np.uint64))


def test_the_matrix_has_its_distribution() -> None:
    entries = matrix_by_definition(1024, "R")
    counts = [(entries == entry).mean() for entry in (-1, 0, 1)]
    np.testing.assert_allclose(counts, [0.25, 0.5, 0.25], atol=5 * np.sqrt(0.25 / entries.size))


def test_shares_of_projections_are_projections_of_shares() -> None:
    round_ = dealt(PACKING, np.arange(20).reshape(1, 20).repeat(10, axis=0))
    rows = round_.blocks[0]
    projected = deal(PACKING, projections(rows, stream("R")))
    np.testing.assert_array_equal(projected, projections(round_.shares_NHL[0], stream("R")))


@pytest.mark.parametrize(("length", "bound"), [(10**6, 2**16), (10**7, 2**14), (1, 2**25)])
def test_the_width_leaves_room_below_the_field(length: int, bound: int) -> None:
    width = width_for(bound, length)
    assert 2 ** (width - 1) < 8 * bound <= 2**width
    assert length * (2 ** (width + 1)) ** 2 < 2**60  # entries below 2^(w + 1): no inner product reaches p / 2
    with pytest.raises(ConfigError, match="could wrap around"):
        width_for(bound + 1, length)


def test_bits_are_those_of_the_shifted_projections() -> None:
    values = np.array([[-8, -1, 0, 7], [3, -5, 1, 2]])
    bits = bits_of(from_integers(values), 3).reshape(2, 4, 4).astype(int)
    np.testing.assert_array_equal(bits @ [1, 2, 4, 8] - 8, values)
    for beyond in (-9, 8):
        with pytest.raises(InvalidUpdate, match="too long"):
            bits_of(from_integers(np.array([[beyond]])), 3)


def short_updates() -> tuple[np.ndarray, int]:
    updates_ND = np.rint(9 * np.random.default_rng(2).standard_normal((10, 301))).astype(np.int64)
    bound = int(np.ceil(np.linalg.norm(updates_ND, axis=1).max()))
    return updates_ND, width_for(bound, 301)


@pytest.mark.parametrize("packing", [PACKING, Packing(10, 1, 2, 1, 2)], ids=str)
def test_honest_dealers_are_proved_short_whoever_lies_about_it(packing: Packing) -> None:
    updates_ND, width = short_updates()
    round_ = dealt(packing, updates_ND)
    round_.prove_short(width)
    round_.lies = {5: 1}
    holders = HOLDERS[1:]
    for judgement in (
        judge_shortness(packing, holders, round_.shortness(holders)),
        judge_degrees(packing, holders, round_.degrees(holders)),
    ):
        assert judgement.bad == ()
        assert judgement.disputes == tuple((dealer, 5) for dealer in range(10))


def bits_with(width: int, tamper: str, round_: Dealt) -> np.ndarray:
    bits_KB = bits_of(projections(round_.blocks[3][:2], stream(round_.challenge)), width)
    match tamper:
        case "another number":
            bits_KB[0, 0] ^= np.uint64(1)
        case "no bit, but the number":
            # Two more ones and a two less: the number is the same, of digits beyond 0 and 1.
            bits_KB[1, :2] = add(bits_KB[1, :2], np.array([2, P - 1], np.uint64))
    return bits_KB


@pytest.mark.adversarial
@pytest.mark.parametrize("tamper", ["another number", "no bit, but the number"])
def test_bad_bits_are_the_dealers_fault(tamper: str) -> None:
    updates_ND, width = short_updates()
    round_ = dealt(PACKING, updates_ND)
    round_.prove_short(width)
    round_.share_bits(3, bits_with(width, tamper, round_))
    assert judge_shortness(PACKING, HOLDERS, round_.shortness(HOLDERS)).bad == (3,)


@pytest.mark.adversarial
def test_bits_of_too_high_a_degree_are_the_dealers_fault() -> None:
    updates_ND, width = short_updates()
    round_ = dealt(PACKING, updates_ND)
    round_.prove_short(width)
    points = np.array(PACKING.holder_points(), np.uint64)
    round_.bits_NHB[3, :, 2] = add(round_.bits_NHB[3, :, 2], points ** np.uint64(PACKING.degree + 1))
    assert judge_degrees(PACKING, HOLDERS, round_.degrees(HOLDERS)).bad == (3,)


@pytest.mark.adversarial
def test_a_mask_that_does_not_vanish_is_the_dealers_fault() -> None:
    updates_ND, width = short_updates()
    round_ = dealt(PACKING, updates_ND)
    round_.prove_short(width)
    round_.vanishing_NH[3] = add(round_.vanishing_NH[3], np.uint64(1))
    assert judge_shortness(PACKING, HOLDERS, round_.shortness(HOLDERS)).bad == (3,)


DEAD = 60  # coordinates that every honest update leaves at 0


def wrapped(updates_ND: np.ndarray, wanted: int) -> list[np.ndarray]:
    """The first two dealers add u and v - u on the dead coordinates, with v = wanted and |u|² = |v - u|² = 0 mod p."""
    v = [wanted] * DEAD
    u = uniform_elements(os.urandom, DEAD).tolist()

    def dot(left: list[int], right: list[int]) -> int:
        return sum(a * b for a, b in zip(left, right, strict=True)) % P

    half = dot(v, v) * pow(2, -1, P) % P  # ⟨u, v⟩ = |v|² / 2
    while True:
        u[0] = (half - dot(v[1:], u[1:])) * pow(wanted, -1, P) % P
        # u_1 + t and u_2 - t leave ⟨u, v⟩ as it is: a square root modulo p gives t, if there is one.
        linear = 2 * (u[1] - u[2])
        discriminant = (linear * linear - 8 * dot(u, u)) % P
        root = pow(discriminant, (P + 1) // 4, P)
        if root * root % P == discriminant:
            t = (root - linear) * pow(4, -1, P) % P
            u[1], u[2] = (u[1] + t) % P, (u[2] - t) % P
            break
        u[3] = (u[3] + 1) % P
    assert dot(u, u) == 0
    vectors = [from_integers(update_D) for update_D in updates_ND]
    added = np.zeros_like(vectors[0])
    added[:DEAD] = u
    rest = np.zeros_like(added)
    rest[:DEAD] = [(a - b) % P for a, b in zip(v, u, strict=True)]
    return [add(vectors[0], added), add(vectors[1], rest), *vectors[2:]]


@pytest.mark.adversarial
def test_two_who_wrap_around_are_chosen_without_the_proof_and_refused_with_it() -> None:
    updates_ND, width = short_updates()
    updates_ND[:, :DEAD] = 0
    updates_ND[:2, DEAD:] = np.rint(updates_ND[2:, DEAD:].mean(axis=0) + 0.5 * updates_ND[:2, DEAD:])
    wanted = 5000
    round_ = dealt(PACKING, wrapped(updates_ND, wanted))

    # Control arm: every distance to the honest is what it would be without u and v, both are chosen, v is in the sum.
    found = assembled(PACKING, 10, HOLDERS, round_.products(HOLDERS), os.urandom)
    assert found is not None
    benign_NN = updates_ND @ updates_ND.T
    pair = np.zeros_like(benign_NN, dtype=bool)
    pair[0, 1] = pair[1, 0] = True
    np.testing.assert_array_equal(found.gram_NN[~pair], benign_NN[~pair])
    distances = squared_distances(found.gram_NN, P)
    chosen = MultiKrum(2, 6).judge(Geometry(distances), uniform(10)).selected
    assert {0, 1} <= set(chosen)
    answers = round_.sums(HOLDERS, [int(i in chosen) for i in range(10)])
    total = summed(PACKING, 301, P, HOLDERS, answers, os.urandom)
    assert total is not None
    assert (total.sum_D[:DEAD] == wanted).all()

    # They cannot share bits of projections as large as p, so they share some.
    for dealer, blocks in enumerate(round_.blocks):
        own = projections(blocks[:2], stream(round_.challenge))
        lifted = to_integers(own)
        fitting = np.where(np.abs(lifted) < 1 << width, lifted, 0)
        round_.share_bits(dealer, bits_of(from_integers(fitting), width))
    round_.width = width
    assert judge_shortness(PACKING, HOLDERS, round_.shortness(HOLDERS)).bad == (0, 1)
