"""Quantised updates: in range, unbiased, no longer than promised, and refused where they are worthless."""

from __future__ import annotations

import math

import numpy as np
import pytest
from foedus.errors import InvalidUpdate
from foedus.privacy.secagg import quantise as module
from foedus.privacy.secagg.prg import Keystream, Ring, piece_buffer
from foedus.privacy.secagg.quantise import (
    MAX_WEIGHT,
    fits,
    largest_coordinate,
    norm_bound,
    quantise,
    smallest_ring,
)
from foedus.privacy.secrets import Secret
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

SEED = Secret(b"q" * 32)
SETTINGS = {"scale": 100.0, "clip_norm": 2.0, "ring": Ring.W32, "seed": SEED}


def test_words_are_those_of_the_definition() -> None:
    """⌊s v + u⌋ with u the next words of the keystream over 2^32, in Python's own numbers."""
    update_D = np.array([0.5, -0.25, 1e-4, 0.0, -1.0], np.float32)
    buffer = piece_buffer()
    Keystream(SEED).into(buffer, 20)
    dither = [word / 2**32 for word in buffer[:20].view("<u4").tolist()]
    expected = [math.floor(100.0 * float(v) + u) for v, u in zip(update_D, dither, strict=True)]
    assert quantise(update_D, **SETTINGS).view("<i4").tolist() == expected


@settings(max_examples=60, deadline=None)
@given(
    update_D=arrays(np.float32, st.integers(1, 50), elements=st.floats(-1e6, 1e6, width=32)),
    scale=st.floats(0.5, 1e5),
    clip_norm=st.floats(1e-3, 1e3),
    seed=st.binary(min_size=32, max_size=32),
    weight=st.one_of(st.none(), st.integers(1, MAX_WEIGHT)),
)
def test_words_stay_within_their_bounds(
    update_D: np.ndarray, scale: float, clip_norm: float, seed: bytes, weight: int | None
) -> None:
    words = quantise(update_D, scale=scale, clip_norm=clip_norm, ring=Ring.W64, seed=Secret(seed), weight=weight).view(
        "<i8"
    )
    if weight is not None:
        assert words[-1] == weight
        assert np.all(words[:-1] % weight == 0)
        words = words[:-1] // weight
    assert np.abs(words).max() <= largest_coordinate(scale, clip_norm)
    assert math.sqrt(sum(int(word) ** 2 for word in words)) <= norm_bound(scale, clip_norm, len(update_D)) * (1 + 1e-12)
    norm = math.sqrt(math.fsum(float(v) ** 2 for v in update_D))
    target = update_D.astype(np.float64) * scale * min(1.0, clip_norm / norm if norm else 1.0)
    assert np.all(np.abs(words - target) <= 1 + 1e-6 * np.abs(target))


def test_rounding_has_no_bias() -> None:
    update_D = np.full(200_000, 0.003, np.float32)
    words = quantise(update_D, scale=100.0, clip_norm=10.0, ring=Ring.W32, seed=SEED).view("<i4")
    p = 100 * float(np.float32(0.003))
    assert set(np.unique(words)) == {0, 1}
    assert abs(words.mean() - p) < 4 * math.sqrt(p * (1 - p) / len(words))


def test_the_same_seed_gives_the_same_words_and_another_does_not() -> None:
    update_D = np.linspace(-0.1, 0.1, 1000, dtype=np.float32)
    first = quantise(update_D, **SETTINGS)
    assert np.array_equal(first, quantise(update_D, **SETTINGS))
    assert not np.array_equal(first, quantise(update_D, **(SETTINGS | {"seed": Secret(b"r" * 32)})))


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    update_D = np.linspace(-0.01, 0.01, 1003, dtype=np.float32)
    whole = quantise(update_D, **SETTINGS)
    monkeypatch.setattr(module, "_BLOCK", 64)
    assert np.array_equal(whole, quantise(update_D, **SETTINGS))


def test_rounding_is_drawn_again_until_the_norm_is_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    update_D, draws = np.full(400, 0.005, np.float32), []
    original = module._round_all

    def counted(*arguments: object) -> float:
        draws.append(original(*arguments))  # type: ignore[arg-type]
        return draws[-1]

    monkeypatch.setattr(module, "_round_all", counted)
    bound = float(np.median([math.sqrt(np.sum(_draw(update_D, number) ** 2)) for number in range(41)]))
    monkeypatch.setattr(module, "norm_bound", lambda *_: bound)
    for number in range(20):
        quantise(update_D, **(SETTINGS | {"seed": Secret(bytes([100 + number]) * 32)}))
        assert draws[-1] <= bound
    assert len(draws) > 20


def _draw(update_D: np.ndarray, number: int) -> np.ndarray:
    return quantise(update_D, **(SETTINGS | {"seed": Secret(bytes([number]) * 32)})).view("<i4").astype(float)


def test_an_update_of_nothing_is_clipped_without_a_division_by_zero() -> None:
    assert not quantise(np.zeros(10, np.float32), **SETTINGS).any()


@pytest.mark.parametrize(
    ("update_D", "words"),
    [
        (np.array([1.0, np.nan], np.float32), "not finite"),
        (np.array([np.inf, 1.0], np.float32), "not finite"),
        (np.array([1, 2], np.int64), "int64"),
        (np.array([1.0, 2.0]), "float64"),
        (np.ones((2, 2), np.float32), r"shape \(2, 2\)"),
    ],
)
def test_worthless_updates_are_refused(update_D: np.ndarray, words: str) -> None:
    with pytest.raises(InvalidUpdate, match=words):
        quantise(update_D, **SETTINGS)


@pytest.mark.parametrize("weight", [0, -1, MAX_WEIGHT + 1, 1.5, True, float("nan")])
def test_worthless_weights_are_refused(weight: int) -> None:
    with pytest.raises(InvalidUpdate, match="weight"):
        quantise(np.ones(3, np.float32), **SETTINGS, weight=weight)


def test_the_largest_float32_is_no_infinity() -> None:
    """Squares of great float32 overflow float32; the norm is worked out in doubles."""
    words = quantise(np.array([3e38, -3e38], np.float32), **SETTINGS).view("<i4")
    assert np.abs(words).max() <= 201
    assert words[0] in (141, 142)


@pytest.mark.parametrize("num_sites", [4, 10, 11, 64])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_at_the_edge_of_the_ring_do_not_wrap(num_sites: int, weighted: bool) -> None:
    """Overflow at ten sites and more, and wrong sums with four, as others had: here the inequality forbids it."""
    for ring in Ring:
        scale = 1.0
        steps = ring.largest // (num_sites * (MAX_WEIGHT if weighted else 1)) - 1
        if steps < 1 or steps > 2**50:
            assert steps > 2**50 or not fits(ring, num_sites, scale, 1.0, weighted=weighted)
            continue
        assert fits(ring, num_sites, scale, float(steps), weighted=weighted)
        assert not fits(ring, num_sites, scale, float(steps) + 1, weighted=weighted)
        assert smallest_ring(num_sites, scale, float(steps), weighted=weighted) <= ring
        weight = MAX_WEIGHT if weighted else None
        update_D = np.array([-np.float32(steps)], np.float32)
        total = np.zeros(1 + weighted, ring.unsigned)
        plain = 0
        for number in range(num_sites):
            words = quantise(
                update_D,
                scale=scale,
                clip_norm=float(steps),
                ring=ring,
                seed=Secret(bytes([number]) * 32),
                weight=weight,
            )
            plain += int(words.view(ring.signed)[0])
            total += words
        assert int(total.view(ring.signed)[0]) == plain
        assert abs(plain) <= ring.largest


def test_no_ring_for_a_sum_that_fits_none() -> None:
    assert smallest_ring(10, 1024.0, 8.0, weighted=False) is Ring.W32
    assert smallest_ring(10, 64.0, 8.0, weighted=False) is Ring.W16
    assert smallest_ring(10, 1024.0, 8.0, weighted=True) is Ring.W32
    assert smallest_ring(2**20, 2.0**40, 1024.0, weighted=True) is None
