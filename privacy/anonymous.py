"""The certificate of a caller who has none yet.

gRPC for Python can require a client certificate on a port or ask for none; it cannot make it
optional. Enrolment must be reachable before the first certificate exists, on the one port there
is, and without ever turning mutual TLS off. So there is a well-known authority whose private key
follows from a public constant: anybody can issue from it, the server lists it among its roots, and
a caller it certifies may call ``Enrolment.Join`` and nothing else.

Its certificates therefore prove nothing, whatever identity they state. A caller is believed only
if ``certificates.verify_issued`` holds for the federation's own authority.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from .certificates import issue, key_to_pem, new_key_pem, new_request, self_signed
from .identity import Identity

_CONSTANT: Final = b"foedus/anonymous-authority/1: this key is public and proves nothing"
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_NAME: Final = "anonymous"
_START: Final = 1_577_836_800.0  # 2020-01-01
_END: Final = 4_102_444_800.0  # 2100-01-01
LIFETIME_SECONDS: Final = 86_400.0


def _authority_key() -> ec.EllipticCurvePrivateKey:
    number = int.from_bytes(hashlib.sha256(_CONSTANT).digest(), "big") % (_P256_ORDER - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1())


def anonymous_authority_pem() -> bytes:
    """The authority's certificate: same key, subject and validity everywhere; only the signature varies."""
    return self_signed(_authority_key(), _NAME, _START, _END)


def anonymous_certificate(now: float) -> tuple[bytes, bytes]:
    """A fresh key and a certificate for it, ``spiffe://anonymous/anonymous/anonymous``, good for a day."""
    key_pem = new_key_pem()
    identity = Identity(_NAME, "anonymous", _NAME)
    request = new_request(key_pem, _NAME)
    authority = anonymous_authority_pem()
    return key_pem, issue(key_to_pem(_authority_key()), authority, request, identity, now, LIFETIME_SECONDS)
