"""Masks: known answers, and that a mask added and subtracted leaves nothing."""

from __future__ import annotations

import ast
import importlib
import struct
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from foedus.privacy.secagg import prg
from foedus.privacy.secagg.prg import PIECE_BYTES, Keystream, Ring, Suite, fold, piece_buffer
from foedus.privacy.secrets import Secret
from hypothesis import given, settings
from hypothesis import strategies as st

ZERO = Secret(bytes(32))
PACKAGE = Path(prg.__file__).resolve().parent


def start(suite: Suite, size: int) -> bytes:
    buffer = piece_buffer()
    Keystream(ZERO, suite).into(buffer, size)
    return buffer[:size].tobytes()


def test_aes_is_the_one_of_fips_197() -> None:
    # AES-256 of the zero block under the zero key, and of counter 1 (NIST's known-answer tests).
    assert start(Suite.AES_256_CTR, 32).hex() == ("dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b")


def test_chacha_is_the_one_of_rfc_8439() -> None:
    assert start(Suite.CHACHA20, 32).hex() == "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"


@pytest.mark.parametrize("ring", list(Ring))
def test_a_million_words_are_the_cipher_s_block_by_block(ring: Ring) -> None:
    seed = Secret(bytes(range(32)))
    words_D = np.zeros(1_000_000, ring.unsigned)
    fold(words_D, add=[seed])
    block = Cipher(algorithms.AES256(seed.reveal_bytes()), modes.ECB()).encryptor()  # noqa: S305 (counters by hand)
    num_blocks = -(-words_D.nbytes // 16)
    counters = b"".join(struct.pack(">QQ", 0, counter) for counter in range(num_blocks))
    expected = block.update(counters)[: words_D.nbytes]
    assert words_D.tobytes() == expected
    assert int(words_D[1]) == int.from_bytes(expected[ring.word_bytes : 2 * ring.word_bytes], "little")


def test_seeds_one_bit_apart_give_unrelated_masks() -> None:
    seed = bytearray(b"s" * 32)
    first, second = np.zeros(100_000, "<u4"), np.zeros(100_000, "<u4")
    fold(first, add=[Secret(bytes(seed))])
    for byte in range(32):  # every part of the seed counts, not 32 bits of it
        changed = bytearray(seed)
        changed[byte] ^= 1
        second[:] = 0
        fold(second, add=[Secret(bytes(changed))])
        differing_bits = np.unpackbits((first ^ second).view(np.uint8)).mean()
        assert abs(differing_bits - 0.5) < 0.005
        assert np.count_nonzero(first == second) < 5


def test_a_mask_is_no_scalar() -> None:
    words = np.zeros(10_000, "<u4")
    fold(words, add=[Secret(b"m" * 32)])
    assert len(np.unique(words)) > 9_990
    assert len(np.unique(np.diff(words))) > 9_990


@settings(max_examples=40, deadline=None)
@given(
    ring=st.sampled_from(list(Ring)),
    suite=st.sampled_from(list(Suite)),
    size=st.sampled_from([1, 3, 1000, PIECE_BYTES // 8 + 5, PIECE_BYTES // 2 + 1, PIECE_BYTES + 3]),
    seeds=st.lists(st.binary(min_size=32, max_size=32), max_size=5),
)
def test_what_is_added_can_be_subtracted(ring: Ring, suite: Suite, size: int, seeds: list[bytes]) -> None:
    before = np.arange(size).astype(ring.unsigned)
    words = before.copy()
    secrets = [Secret(seed) for seed in seeds]
    fold(words, add=secrets, suite=suite)
    apart = before.copy()
    for secret in secrets:
        fold(apart, add=[secret], suite=suite)
    assert np.array_equal(words, apart)
    fold(words, subtract=secrets, suite=suite)
    assert np.array_equal(words, before)


def test_more_masks_than_streams_are_opened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [Secret(bytes([number]) * 32) for number in range(7)]
    words, few = np.zeros(100, "<u4"), np.zeros(100, "<u4")
    fold(words, add=seeds[:5], subtract=seeds[5:])
    monkeypatch.setattr(prg, "MAX_OPEN_STREAMS", 2)
    fold(few, add=seeds[:5], subtract=seeds[5:])
    assert np.array_equal(words, few)


def imported_by(path: Path) -> set[str]:
    found = set()
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom) and item.level == 0:
            found.add(item.module or "")
        elif isinstance(item, ast.Attribute) and item.attr == "random":
            found.add(ast.unparse(item))
    return found


def test_nothing_is_drawn_but_from_the_operating_system_or_a_cipher() -> None:
    paths = [*PACKAGE.glob("*.py"), PACKAGE.parent / "secrets.py"]
    assert len(paths) > 20
    for path in paths:
        assert not imported_by(path) & {"random", "numpy.random", "np.random", "numpy.random.random"}, path.name
    assert importlib.import_module("foedus.privacy.secagg.keys").os.urandom  # where secrets come from
