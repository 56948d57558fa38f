"""The roster: which Ed25519 key belongs to which site, signed by a key that the server does not have."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ...errors import ConfigError
from .codes import AbortCode, abort
from .encoding import Reader, listed, number, text
from .keys import KEY_BYTES, PROTOCOL
from .signing import SIGNATURE_BYTES, site_id


@dataclass(frozen=True, slots=True)
class Roster:
    """The sites of a federation at one version.

    Attributes:
        federation: its name.
        version: counts up; a site never goes back to a lower one.
        public_keys: each site's Ed25519 key, sorted by the id that follows from it, each once.
        signature: the operator's, over "fl-sa/v1/roster" ‖ 0 ‖ SHA-256(fields).

    Raises:
        ConfigError: the keys are not in order, or not 32 bytes each.
    """

    federation: str
    version: int
    public_keys: tuple[bytes, ...]
    signature: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        ids = [site_id(key) for key in self.public_keys]
        if any(len(key) != KEY_BYTES for key in self.public_keys) or ids != sorted(set(ids)):
            raise ConfigError("a roster lists Ed25519 keys of 32 bytes, each once, sorted by site id")

    @property
    def by_id(self) -> Mapping[bytes, bytes]:
        """The key of each site id."""
        return {site_id(key): key for key in self.public_keys}

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it, the signature included."""
        return hashlib.sha256(self.to_bytes()).digest()

    def _fields(self) -> bytes:
        return text(self.federation) + number(self.version, 8) + listed(self.public_keys)

    def _signed_bytes(self) -> bytes:
        return PROTOCOL + b"roster\0" + hashlib.sha256(self._fields()).digest()

    def to_bytes(self) -> bytes:
        """federation ‖ version 8 ‖ count 4 ‖ keys 32 each ‖ signature 64."""
        return self._fields() + self.signature

    @staticmethod
    def from_bytes(data: bytes) -> Roster:
        """Read what ``to_bytes`` wrote; the signature is not checked yet.

        Raises:
            SecureSumFailed: "bad-message".
        """
        reader = Reader(data, "a roster")
        federation, version = reader.text(), reader.number(8)
        keys = tuple(reader.take(KEY_BYTES) for _ in range(reader.count(KEY_BYTES)))
        signature = reader.take(SIGNATURE_BYTES)
        reader.end()
        try:
            return Roster(federation, version, keys, signature)
        except ConfigError as error:
            raise abort(AbortCode.BAD_MESSAGE, str(error)) from None

    def verify(self, operator_key: bytes, *, federation: str, at_least: int) -> None:
        """Check the operator's signature with the key pinned at enrolment.

        Raises:
            SecureSumFailed: "bad-signature"; "policy" for another federation, or a version below ``at_least``.
        """
        try:
            Ed25519PublicKey.from_public_bytes(operator_key).verify(self.signature, self._signed_bytes())
        except (InvalidSignature, ValueError):
            raise abort(
                AbortCode.BAD_SIGNATURE, "the roster is not signed by the operator key pinned at enrolment"
            ) from None
        if self.federation != federation:
            raise abort(AbortCode.POLICY, f"the roster is of federation {self.federation!r}, expected {federation!r}")
        if self.version < at_least:
            reason = f"the roster has version {self.version}, and version {at_least} has been seen"
            raise abort(AbortCode.POLICY, reason)


def signed_roster(operator: Ed25519PrivateKey, federation: str, version: int, public_keys: tuple[bytes, ...]) -> Roster:
    """A roster of these keys, in any order, signed by the operator."""
    unsigned = Roster(federation, version, tuple(sorted(public_keys, key=site_id)))
    return Roster(federation, version, unsigned.public_keys, operator.sign(unsigned._signed_bytes()))
