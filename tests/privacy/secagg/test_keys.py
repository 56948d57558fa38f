"""Keys: known answers of every label, and what a sealed share is bound to."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg.keys import (
    agree,
    commitment,
    derive,
    fresh_secret,
    loaded,
    pair_mask,
    public_key,
    seal,
    self_mask,
    unseal,
)
from foedus.privacy.secagg.signing import Kind, Signed, sign, site_id, verify
from foedus.privacy.secrets import Secret

SID, ONE, TWO = b"s" * 32, b"1" * 16, b"2" * 16
# Points of order 1, 2, 4 and 8, with which every agreement gives zero.
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]
# Section 6.1.
RFC_7748 = {
    "alice": "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
    "alice_public": "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
    "bob": "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    "shared": "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
}


def hkdf_by_hand(salt: bytes, ikm: bytes, info: bytes) -> bytes:
    """RFC 5869 for one block."""
    key = hmac.new(salt, ikm, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def test_agreement_is_that_of_rfc_7748() -> None:
    alice = Secret(bytes.fromhex(RFC_7748["alice"]))
    bob = Secret(bytes.fromhex(RFC_7748["bob"]))
    assert public_key(alice).hex() == RFC_7748["alice_public"]
    shared = agree(loaded(alice), public_key(bob))
    assert shared == agree(loaded(bob), public_key(alice)) == Secret(bytes.fromhex(RFC_7748["shared"]))


def test_each_label_derives_its_own_key() -> None:
    ikm = Secret(b"i" * 32)
    keys = [derive(SID, ikm, label, ONE, TWO) for label in ("mask", "seal/shares", "self")]
    for label, key in zip(("mask", "seal/shares", "self"), keys, strict=True):
        expected = hkdf_by_hand(SID, b"i" * 32, b"fl-sa/v1/" + label.encode() + ONE + TWO)
        assert key == Secret(expected)
    assert len({key.reveal_bytes() for key in keys}) == 3
    assert self_mask(SID, ikm, ONE) == Secret(hkdf_by_hand(SID, b"i" * 32, b"fl-sa/v1/self" + ONE))
    assert commitment(SID, ONE, ikm) == hashlib.sha256(b"fl-sa/v1/com" + SID + ONE + b"i" * 32).digest()


def test_a_pair_has_one_mask_and_every_pair_another() -> None:
    """No shared secret is used for two pairs, as happened where one secret served all."""
    privates = {bytes([number]) * 16: fresh_secret() for number in range(5)}
    seeds = {}
    for one, mine in privates.items():
        for other, theirs in privates.items():
            if one < other:
                seed = pair_mask(SID, loaded(mine), public_key(theirs), one, other)
                assert seed == pair_mask(SID, loaded(theirs), public_key(mine), other, one)
                seeds[one, other] = seed.reveal_bytes()
    assert len(set(seeds.values())) == 10
    mine, theirs = privates[b"\0" * 16], privates[b"\1" * 16]
    again = pair_mask(b"t" * 32, loaded(mine), public_key(theirs), b"\0" * 16, b"\1" * 16)
    assert again.reveal_bytes() not in seeds.values()  # another session, another mask


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_of_low_order_are_refused(point: bytes) -> None:
    with pytest.raises(SecureSumFailed, match="low order") as caught:
        agree(loaded(fresh_secret()), point)
    assert caught.value.reason == "bad-key"


def test_a_sealed_share_opens_only_where_it_belongs() -> None:
    key = fresh_secret()
    whole = {"sid": SID, "kind": "shares", "sender": ONE, "receiver": TWO}
    sealed = seal(key, b"share", **whole)
    assert unseal(key, sealed, **whole) == Secret(b"share")
    assert unseal(fresh_secret(), sealed, **whole) is None
    assert unseal(key, sealed[:-1] + bytes([sealed[-1] ^ 1]), **whole) is None
    for field, other in {"sid": b"t" * 32, "kind": "bits", "sender": TWO, "receiver": ONE}.items():
        assert unseal(key, sealed, **(whole | {field: other})) is None


def test_a_signature_holds_for_one_message_only() -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    message = sign(key, Kind.ACK, SID, b"body")
    assert message.sender == site_id(public) == hashlib.sha256(public).digest()[:16]
    verify(message, public)
    by_hand = b"fl-sa/v1/sig/ack\0" + SID + message.sender + hashlib.sha256(b"body").digest()
    key.public_key().verify(message.signature, by_hand)
    for changed in (
        Signed(Kind.MASKED, SID, message.sender, b"body", message.signature),
        Signed(Kind.ACK, b"t" * 32, message.sender, b"body", message.signature),
        Signed(Kind.ACK, SID, ONE, b"body", message.signature),
        Signed(Kind.ACK, SID, message.sender, b"Body", message.signature),
    ):
        with pytest.raises(SecureSumFailed, match="signature") as caught:
            verify(changed, public)
        assert caught.value.blamed == (changed.sender,)
