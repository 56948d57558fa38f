"""What is drawn in a session of sketches is drawn as written down, and from what nobody knew before."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from foedus.privacy.secagg.checks import view_digest
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.dealing import Dealing, dealing_of, dealt, products, proved
from foedus.privacy.secagg.share_terms import proof_elements, width_of
from foedus.privacy.secagg.sharing_messages import Selection, agreement_on, agreement_on_proofs, view_of_selection
from foedus.privacy.secagg.signing import Kind, Signed
from foedus.privacy.secagg.sketching import sketch_of
from foedus.privacy.sharing.field import Elements, P
from foedus.privacy.sharing.sketches import BUCKETS, ROWS, TABLES
from secure_sums import federation
from sketched_sums import sketch_server, sketched

TEN = federation(10)


def keystream(seed: bytes, size: int) -> bytes:
    """AES-256-CTR from counter 0, under the SHA-256 of what is hashed."""
    key = hashlib.sha256(seed).digest()
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def test_the_matrix_is_the_one_written_down_and_hangs_on_the_view() -> None:
    described, view = sketched(TEN, num_coordinates=50), b"v" * 32
    words_D = np.random.default_rng(0).integers(-1000, 1000, 50).astype("<i4")
    drawn = np.frombuffer(keystream(b"fl-sa/v1/J" + described.sid + view, 9 << 16), np.uint8).reshape(9, 1 << 16)
    expected = np.zeros((TABLES, BUCKETS), np.int64)
    for place, value in enumerate(words_D.tolist()):
        for table in range(TABLES):
            expected[table, drawn[table, place]] += -value if drawn[8, place] >> table & 1 else value
    assert np.array_equal(sketch_of(described, view, words_D.view("<u4")), expected.reshape(-1))
    assert not np.array_equal(sketch_of(described, b"w" * 32, words_D.view("<u4")), expected.reshape(-1))


def test_the_view_hangs_on_everybodys_words() -> None:
    """So nobody can know the matrix before the last upload."""
    run = sketch_server(TEN, sketched(TEN, num_coordinates=20))
    run.to(Phase.DEALS)
    collection = run.collection
    keys, dealers, masked = list(collection.masks.keys.values()), list(TEN.ids), list(collection.masks.masked.values())
    assert view_digest(run.described.sid, keys, dealers, masked) == collection.view
    for place, message in enumerate(masked):
        others = [*masked[:place], replace(message, body=bytes(32)), *masked[place + 1 :]]
        assert view_digest(run.described.sid, keys, dealers, others) != collection.view


def answers(
    dealing: Dealing, boxes: dict[bytes, Elements], proofs: dict[bytes, Elements], *seeds: bytes
) -> list[Elements]:
    held = {dealer: rows[0] for dealer, rows in boxes.items()}
    proved_here = {dealer: rows[0] for dealer, rows in proofs.items()}
    found = products(dealing, held, proved_here, *seeds)
    return [found.products_A, found.degrees_N, found.masks_Z, found.short_S]


@pytest.mark.parametrize("strict", [False, True])
def test_every_test_is_drawn_from_what_was_agreed_on_last(strict: bool) -> None:
    described = sketched(TEN, strict=strict)
    dealing = dealing_of(described, TEN.ids)
    vector_L = np.arange(ROWS) - 1000
    agreement, challenge = b"a" * 32, b"c" * 32
    boxes = {site: dealt(dealing, site, vector_L, os.urandom) for site in TEN.ids}
    proofs = {site: proved(dealing, vector_L, agreement, os.urandom) for site in TEN.ids} if strict else {}
    found = answers(dealing, boxes, proofs, agreement, challenge)
    others = answers(dealing, boxes, proofs, agreement, b"d" * 32)
    assert np.array_equal(found[0], others[0])
    for part, other in zip(found[1:], others[1:], strict=True):
        assert not (part == other).any()
    assert len(found[3]) == (10 if strict else 0)
    if strict:
        assert (found[3] != answers(dealing, boxes, proofs, b"b" * 32, challenge)[3]).all()

    # The degree test of one dealer, as it is defined.
    tested = [*boxes[TEN.ids[4]][0][:ROWS].tolist(), *(proofs[TEN.ids[4]][0].tolist() if strict else ())]
    assert len(tested) == ROWS + proof_elements(width_of(described))
    words = np.frombuffer(keystream(challenge + b"degrees", 8 * len(tested)), "<u8") & np.uint64(P)
    mask = int(boxes[TEN.ids[4]][0][ROWS])
    expected = (sum(a * b for a, b in zip(tested, words.tolist(), strict=True)) + mask) % P
    assert int(found[1][4]) == expected


def test_mask_dealers_are_those_with_the_lowest_digests() -> None:
    described = sketched(TEN)
    digests = sorted((hashlib.sha256(described.sid + site).digest(), site) for site in TEN.ids)
    assert dealing_of(described, TEN.ids).mask_dealers == tuple(sorted(site for _, site in digests[:4]))  # T + 1 + D


def test_agreements_are_about_all_that_was_sent() -> None:
    sid, view = b"s" * 32, b"v" * 32
    messages = [Signed(Kind.DEAL, sid, site, b"body", bytes(64)) for site in TEN.ids]
    listed = (10).to_bytes(4, "big") + b"".join(message.to_bytes() for message in messages)
    agreement = hashlib.sha256(b"fl-sa/v1/deals" + sid + view + listed).digest()
    assert agreement_on(sid, view, messages) == agreement
    assert (
        agreement_on_proofs(sid, agreement, messages)
        == hashlib.sha256(b"fl-sa/v1/proofs" + sid + agreement + listed).digest()
    )
    selection = Selection({b"b" * 16: 1, b"a" * 16: 2})
    written = (2).to_bytes(4, "big") + b"a" * 16 + (2).to_bytes(4, "big") + b"b" * 16 + (1).to_bytes(4, "big")
    expected = hashlib.sha256(b"fl-sa/v1/select" + sid + agreement + written).digest()
    assert view_of_selection(sid, agreement, selection) == expected
