"""Key agreement, key derivation and sealing: X25519, HKDF-SHA256, AES-256-GCM."""

from __future__ import annotations

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..secrets import Secret
from .codes import AbortCode, abort

PROTOCOL = b"fl-sa/v1/"
KEY_BYTES = 32
TAG_BYTES = 16
_NONCE = bytes(12)  # every key seals one message


def fresh_secret() -> Secret:
    """32 bytes from the operating system; also an X25519 private key."""
    return Secret(os.urandom(KEY_BYTES))


def loaded(private: Secret) -> X25519PrivateKey:
    """A private key ready for agreements; loading it costs more than one agreement."""
    return X25519PrivateKey.from_private_bytes(private.reveal_bytes())


def public_key(private: Secret) -> bytes:
    """The X25519 public key, 32 bytes, of a private one."""
    return loaded(private).public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes) -> Secret:
    """The X25519 secret of a pair.

    Raises:
        SecureSumFailed: "bad-key": a point of low order, with which the secret would be known to everybody.
    """
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise abort(AbortCode.BAD_KEY, "a public key is a point of low order") from None
    return Secret(shared)


def derive(sid: bytes, ikm: Secret, label: str, *ids: bytes) -> Secret:
    """HKDF-SHA256(salt = sid, info = "fl-sa/v1/" ‖ label ‖ ids), 32 bytes."""
    info = PROTOCOL + label.encode() + b"".join(ids)
    return Secret(HKDF(SHA256(), KEY_BYTES, sid, info).derive(ikm.reveal_bytes()))


def pair_mask(sid: bytes, private: X25519PrivateKey, public: bytes, one: bytes, other: bytes) -> Secret:
    """The mask seed of two sites: the same from either side."""
    return derive(sid, agree(private, public), "mask", *sorted((one, other)))


def self_mask(sid: bytes, seed: Secret, site: bytes) -> Secret:
    """The mask seed that only ``site`` knows until its seed is recovered."""
    return derive(sid, seed, "self", site)


def commitment(sid: bytes, site: bytes, seed: Secret) -> bytes:
    """What a site publishes of its seed, so that a seed recovered wrongly is noticed."""
    return hashlib.sha256(PROTOCOL + b"com" + sid + site + seed.reveal_bytes()).digest()


def _associated(sid: bytes, kind: str, sender: bytes, receiver: bytes) -> bytes:
    return sid + kind.encode() + sender + receiver


def seal(key: Secret, plain: bytes, *, sid: bytes, kind: str, sender: bytes, receiver: bytes) -> bytes:
    """AES-256-GCM under a key that seals nothing else."""
    return AESGCM(key.reveal_bytes()).encrypt(_NONCE, plain, _associated(sid, kind, sender, receiver))


def unseal(key: Secret, sealed: bytes, *, sid: bytes, kind: str, sender: bytes, receiver: bytes) -> Secret | None:
    """What ``seal`` was given; None where key, bytes or addressees are others."""
    try:
        return Secret(AESGCM(key.reveal_bytes()).decrypt(_NONCE, sealed, _associated(sid, kind, sender, receiver)))
    except InvalidTag:
        return None
