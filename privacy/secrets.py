"""Secrets that do not print, and one-time tokens of which only a hash is kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NoReturn

TOKEN_BYTES = 32


class Secret:
    """A value that must be revealed on purpose: it neither prints, nor pickles, nor hashes.

    Two secrets compare in constant time. ``bool(secret)`` says whether it is non-empty.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | bytes) -> None:
        self._value = value.encode() if isinstance(value, str) else bytes(value)

    def reveal(self) -> str:
        """The secret as text."""
        return self._value.decode()

    def reveal_bytes(self) -> bytes:
        """The secret as bytes."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret(…)"

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Secret is never pickled or copied; pass it on, or reveal() it on purpose")


def new_token() -> Secret:
    """256 bits from the operating system, as base64url text."""
    return Secret(secrets.token_urlsafe(TOKEN_BYTES))


def token_hash(secret: Secret) -> str:
    """What may be stored of a token: its hex SHA-256. Enough, since a token has full entropy."""
    return hashlib.sha256(secret.reveal_bytes()).hexdigest()


def matches(secret: Secret, stored_hash: str) -> bool:
    """Whether ``stored_hash`` is the hash of ``secret``, in constant time."""
    return hmac.compare_digest(token_hash(secret).encode(), stored_hash.encode())
