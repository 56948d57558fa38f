"""Ed25519 keys as files: with which a site signs in secure sums, and an operator the roster.

Private keys are unencrypted PKCS#8 PEM, to be stored readable by their owner alone; public keys are
their 32 raw bytes, in hex where people read them.
"""

from __future__ import annotations

import re
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ConfigError

_HEX: Final = re.compile("[0-9a-f]{64}")


def new_signing_key_pem() -> bytes:
    """A fresh private key."""
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_signing_key(pem: bytes, where: str) -> Ed25519PrivateKey:
    """The private key in a file's content; ``where`` is for the message.

    Raises:
        ConfigError: it is no unencrypted Ed25519 key.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{where} is not an unencrypted PEM key, expected one that foedus made") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{where} is not an Ed25519 key, expected one that foedus made")
    return key


def public_key(text: str, where: str) -> bytes:
    """The 32 bytes of a public key in hex; ``where`` is for the message.

    Raises:
        ConfigError: it is not 64 lower-case hexadecimal digits.
    """
    if not _HEX.fullmatch(text):
        raise ConfigError(f"{where} is not an Ed25519 key, expected 64 hexadecimal digits")
    return bytes.fromhex(text)
