"""What leaves is the file, or the masked words instead; from any byte on."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.client_sdk.parcel import Parcel
from foedus.privacy.secagg.signing import Kind, sign
from foedus.protos.messages import UploadHeader

PLAIN, WORDS = bytes(range(100)), bytes(range(100, 200))


@pytest.fixture
def parcel(tmp_path):
    path = tmp_path / "update"
    path.write_bytes(PLAIN)
    header = UploadHeader(
        run="spring",
        round=2,
        model_sha256="11" * 32,
        layout_sha256="22" * 32,
        num_bytes=len(PLAIN),
        sha256=hashlib.sha256(PLAIN).hexdigest(),
        num_examples=7,
        num_steps=3,
        metrics={"loss": 0.5},
    )
    return Parcel(header, path, seed=1)


def masked(parcel):
    message = sign(Ed25519PrivateKey.generate(), Kind.MASKED, bytes(32), hashlib.sha256(WORDS).digest())
    return parcel.masked(memoryview(WORDS), message.to_bytes())


@pytest.mark.parametrize("offset", [0, 1, 33, 99, 100])
def test_pieces_are_what_is_left(parcel, offset):
    for sent, whole in ((parcel, PLAIN), (masked(parcel), WORDS)):
        pieces = list(sent.pieces(offset, lambda: 33))
        assert b"".join(pieces) == whole[offset:]
        assert all(0 < len(piece) <= 33 for piece in pieces)


def test_masked_words_say_nothing_of_the_update(parcel):
    header = masked(parcel).header
    assert (header.num_examples, header.num_steps, dict(header.metrics)) == (0, 0, {})
    assert header.sha256 == hashlib.sha256(WORDS).hexdigest()
    assert header.num_bytes == len(WORDS)
    assert header.work == parcel.header.work
