"""What an operator hands to a site: one line with everything needed to join.

It carries the authority's whole certificate, not only its fingerprint, so that the joiner
authenticates the server in the very first handshake and never has to make an unverified one.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import ConfigError
from .address import split_address

PREFIX: Final = "foedus1."
MAX_TEXT_LENGTH: Final = 8 * 1024
MAX_JSON_BYTES: Final = 32 * 1024
LAST_MOMENT: Final = 1e11  # in Unix seconds, past any calendar
_ROSTER_KEY: Final = re.compile("([0-9a-f]{64})?")
_HINT = "copy the whole line that 'foedus server invite' printed, or ask the operator for a new one"


@dataclass(frozen=True, slots=True)
class Invitation:
    """A one-time permission to enrol.

    Attributes:
        address: where the server listens, ``host:port``.
        name: the only name the secret may be used for.
        role: "site" or "operator".
        authority_pem: the certificate of the federation's authority.
        secret: the one-time token; never printed.
        expires: when it lapses, in Unix seconds.
        roster_key: the Ed25519 key, 32 bytes, with which the operator signs rosters; empty if it has none. The
            operator's machine puts it in, never the server.
    """

    address: str
    name: str
    role: str
    authority_pem: bytes
    secret: str = field(repr=False)
    expires: float
    roster_key: bytes = b""

    def encode(self) -> str:
        """One line without spaces."""
        values = {
            "address": self.address,
            "name": self.name,
            "role": self.role,
            "authority": self.authority_pem.decode("ascii"),
            "secret": self.secret,
            "expires": self.expires,
            **({"roster_key": self.roster_key.hex()} if self.roster_key else {}),
        }
        packed = zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 9)
        return PREFIX + base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @staticmethod
    def decode(text: str) -> Invitation:
        """Read what ``encode`` wrote.

        Raises:
            ConfigError: it is not an invitation, is damaged, or larger than ``MAX_TEXT_LENGTH``.
        """
        text = text.strip()
        if len(text) > MAX_TEXT_LENGTH:
            raise ConfigError(f"an invitation has at most {MAX_TEXT_LENGTH} characters, this has {len(text)}")
        if not text.startswith(PREFIX):
            raise ConfigError(f"this is not an invitation: it does not start with {PREFIX!r}", hint=_HINT)
        values = _unpack(text.removeprefix(PREFIX))
        split_address(values["address"])
        if values["role"] not in ("site", "operator"):
            raise ConfigError(f"the invitation is for the unknown role {values['role']!r:.80}", hint=_HINT)
        return Invitation(
            values["address"],
            values["name"],
            values["role"],
            values["authority"].encode("ascii"),
            values["secret"],
            values["expires"],
            bytes.fromhex(values["roster_key"]),
        )


def _unpack(text: str) -> dict[str, Any]:
    damaged = ConfigError("the invitation is damaged", hint=_HINT)
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        inflater = zlib.decompressobj()
        content = inflater.decompress(packed, MAX_JSON_BYTES)
        values = json.loads(content)
    except (ValueError, binascii.Error, zlib.error, RecursionError):
        raise damaged from None
    if not inflater.eof or inflater.unused_data or not isinstance(values, dict):
        raise damaged
    texts = ("address", "name", "role", "authority", "secret")
    values.setdefault("roster_key", "")
    if set(values) != {*texts, "expires", "roster_key"}:
        raise damaged
    if not isinstance(values["roster_key"], str) or not _ROSTER_KEY.fullmatch(values["roster_key"]):
        raise damaged
    if not all(isinstance(values[key], str) and values[key].isascii() for key in texts):
        raise damaged
    # ``bool`` is an ``int`` to Python, but no moment in time.
    if type(values["expires"]) not in (int, float) or not abs(values["expires"]) < LAST_MOMENT:
        raise damaged
    return {**values, "expires": float(values["expires"])}
