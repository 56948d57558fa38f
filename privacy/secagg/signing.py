"""Signed messages of a site: who says what, in which session."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .codes import AbortCode, abort
from .encoding import DIGEST_BYTES, SITE_ID_BYTES, Reader, number
from .keys import PROTOCOL

SIGNATURE_BYTES = 64
HEADER_BYTES = 1 + DIGEST_BYTES + SITE_ID_BYTES + 4


class Kind(IntEnum):
    """The messages: of a sum, in their order; then those of computing on shares (see ``sharing_messages``)."""

    OFFER = 1
    KEYS = 2
    KEY_LIST = 3
    SHARES = 4
    DELIVER = 5
    COMPLAINT = 6
    MASKED = 7
    SURVIVORS = 8
    ACK = 9
    ACK_LIST = 10
    UNMASK = 11
    DEAL = 12
    DEALS = 13
    AGREE = 14
    BOXES = 15
    PRODUCTS = 16
    SELECT = 17
    SUM = 18
    PROOFS = 19
    CONFIRM = 20
    FETCH = 21

    @property
    def label(self) -> str:
        """The name under which it is signed."""
        return self.name.lower().replace("_", "-")


KINDS = frozenset(Kind)


def site_id(public: bytes) -> bytes:
    """The id of a site: the first 16 bytes of the SHA-256 of its Ed25519 key."""
    return hashlib.sha256(public).digest()[:SITE_ID_BYTES]


@dataclass(frozen=True, slots=True)
class Signed:
    """One message of one site.

    Attributes:
        kind: which message.
        sid: the session.
        sender: the site's id.
        body: the message's own bytes; may hold shares, so it does not print.
        signature: Ed25519 over "fl-sa/v1/sig/" ‖ label ‖ 0 ‖ sid ‖ sender ‖ SHA-256(body).
    """

    kind: Kind
    sid: bytes
    sender: bytes
    body: bytes = field(repr=False)
    signature: bytes

    def to_bytes(self) -> bytes:
        """kind 1 ‖ sid 32 ‖ sender 16 ‖ length 4 ‖ body ‖ signature 64."""
        head = number(self.kind, 1) + self.sid + self.sender + number(len(self.body), 4)
        return head + self.body + self.signature

    @staticmethod
    def read(reader: Reader) -> Signed:
        """Read one from a list of them.

        Raises:
            SecureSumFailed: "bad-message": it is cut short, or of no known kind.
        """
        code = reader.number(1)
        if code not in KINDS:
            raise abort(AbortCode.BAD_MESSAGE, f"there is no message of kind {code}")
        sid, sender = reader.take(DIGEST_BYTES), reader.take(SITE_ID_BYTES)
        body = reader.take(reader.number(4))
        return Signed(Kind(code), sid, sender, body, reader.take(SIGNATURE_BYTES))

    @staticmethod
    def from_bytes(data: bytes) -> Signed:
        """Read what ``to_bytes`` wrote, and nothing more.

        Raises:
            SecureSumFailed: "bad-message".
        """
        reader = Reader(data, "a signed message")
        message = Signed.read(reader)
        reader.end()
        return message


def _signed_bytes(kind: Kind, sid: bytes, sender: bytes, body: bytes) -> bytes:
    return PROTOCOL + b"sig/" + kind.label.encode() + b"\0" + sid + sender + hashlib.sha256(body).digest()


def sign(key: Ed25519PrivateKey, kind: Kind, sid: bytes, body: bytes) -> Signed:
    """A message of the site that holds ``key``."""
    sender = site_id(key.public_key().public_bytes_raw())
    return Signed(kind, sid, sender, body, key.sign(_signed_bytes(kind, sid, sender, body)))


def verify(message: Signed, public: bytes) -> None:
    """Check a message against its sender's Ed25519 key.

    Raises:
        SecureSumFailed: "bad-signature", blaming the sender.
    """
    signed = _signed_bytes(message.kind, message.sid, message.sender, message.body)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(message.signature, signed)
    except (InvalidSignature, ValueError):
        reason = f"the signature on the {message.kind.label} message of site {message.sender.hex()} is wrong"
        raise abort(AbortCode.BAD_SIGNATURE, reason, [message.sender]) from None
