"""The messages of a session and their bytes. The sites' are signed (``signing``), the server's framed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ..secrets import Secret
from .codes import AbortCode, abort
from .encoding import DIGEST_BYTES, SITE_ID_BYTES, Reader, listed, number
from .keys import KEY_BYTES, TAG_BYTES
from .shamir import SHARE_BYTES
from .signing import HEADER_BYTES, KINDS, SIGNATURE_BYTES, Kind, Signed

SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
KEYS_BYTES = 2 * KEY_BYTES + DIGEST_BYTES
_FRAME_BYTES = 1 + DIGEST_BYTES
_ENTRY_BYTES = HEADER_BYTES + KEYS_BYTES + SIGNATURE_BYTES  # the longest entry of any list
MAX_ROSTER_BYTES = 1 << 20


def max_message_bytes(num_sites: int) -> int:
    """No message but an offer is longer in a session of so many sites; to be checked before one is read.

    Twice what is needed, so that a list with a site too many is read, and refused as what it is.
    """
    return HEADER_BYTES + SIGNATURE_BYTES + 8 + 2 * num_sites * _ENTRY_BYTES


def frame(kind: Kind, sid: bytes, body: bytes) -> bytes:
    """A message of the server: kind 1 ‖ sid 32 ‖ body."""
    return number(kind, 1) + sid + body


def unframe(data: bytes) -> tuple[Kind, bytes, bytes]:
    """Kind, sid and body of a message of the server.

    Raises:
        SecureSumFailed: "bad-message".
    """
    reader = Reader(data[:_FRAME_BYTES], "a message of the server")
    code, sid = reader.number(1), reader.take(DIGEST_BYTES)
    if code not in KINDS:
        raise abort(AbortCode.BAD_MESSAGE, f"there is no message of kind {code}")
    return Kind(code), sid, data[_FRAME_BYTES:]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Server to site: its message is too long for a session, and to be fetched as a file; what that must be."""

    sha256: bytes
    num_bytes: int

    def to_bytes(self) -> bytes:
        """SHA-256 32 ‖ length 8."""
        return self.sha256 + number(self.num_bytes, 8)

    @staticmethod
    def from_bytes(body: bytes) -> Fetch:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "a message about a file")
        found = Fetch(reader.take(DIGEST_BYTES), reader.number(8))
        reader.end()
        return found


@dataclass(frozen=True, slots=True)
class Offer:
    """Server to site: the session and who is who. Descriptor and roster are bytes, so that they hash as sent."""

    descriptor: bytes
    roster: bytes

    def to_bytes(self) -> bytes:
        """Each after its length in four bytes."""
        return b"".join(number(len(part), 4) + part for part in (self.descriptor, self.roster))

    @staticmethod
    def from_bytes(body: bytes) -> Offer:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "an offer")
        descriptor = reader.take(reader.number(4))
        roster = reader.take(reader.number(4))
        reader.end()
        if len(roster) > MAX_ROSTER_BYTES:
            raise abort(AbortCode.BAD_MESSAGE, f"the roster has {len(roster)} bytes, at most {MAX_ROSTER_BYTES}")
        return Offer(descriptor, roster)


@dataclass(frozen=True, slots=True)
class Keys:
    """Site: its two X25519 keys of this session, and the commitment to the seed of its own mask."""

    seal_key: bytes
    mask_key: bytes
    commitment: bytes

    def to_bytes(self) -> bytes:
        """32 bytes each."""
        return self.seal_key + self.mask_key + self.commitment

    @staticmethod
    def from_bytes(body: bytes) -> Keys:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "a keys message")
        found = Keys(reader.take(KEY_BYTES), reader.take(KEY_BYTES), reader.take(DIGEST_BYTES))
        reader.end()
        return found


@dataclass(frozen=True, slots=True)
class Sealed:
    """Two shares for one holder, or from one dealer: who the other is, and 82 bytes that only the two can read."""

    other: bytes
    ciphertext: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """id ‖ ciphertext."""
        return self.other + self.ciphertext

    @staticmethod
    def read(reader: Reader) -> Sealed:
        """Read one from a list of them."""
        return Sealed(reader.take(SITE_ID_BYTES), reader.take(SEALED_BYTES))


@dataclass(frozen=True, slots=True)
class Shares:
    """Site: sealed shares of its two secrets for each of its holders but itself, sorted by holder."""

    sealed: tuple[Sealed, ...]

    def to_bytes(self) -> bytes:
        """A list."""
        return listed(item.to_bytes() for item in self.sealed)

    @staticmethod
    def from_bytes(body: bytes) -> Shares:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "a shares message")
        sealed = _read_sealed(reader)
        reader.end()
        return Shares(sealed)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Server to site: who has dealt shares (U2, sorted), and the sealed shares that are for this site."""

    dealers: tuple[bytes, ...]
    sealed: tuple[Sealed, ...]

    def to_bytes(self) -> bytes:
        """Two lists."""
        return listed(self.dealers) + listed(item.to_bytes() for item in self.sealed)

    @staticmethod
    def from_bytes(body: bytes) -> Deliver:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "a delivery")
        dealers = _read_ids(reader)
        sealed = _read_sealed(reader)
        reader.end()
        return Deliver(dealers, sealed)


@dataclass(frozen=True, slots=True)
class Complaint:
    """Site: the dealers whose sealed shares do not open, sorted."""

    dealers: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """A list."""
        return listed(self.dealers)

    @staticmethod
    def from_bytes(body: bytes) -> Complaint:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "a complaint")
        dealers = _read_ids(reader)
        reader.end()
        return Complaint(dealers)


class Which(IntEnum):
    """Which of a site's two secrets a share belongs to."""

    SEED = 1
    MASK_KEY = 2


@dataclass(frozen=True, slots=True)
class Revealed:
    """A share that a holder gives away: of whom, of which secret, and the share."""

    owner: bytes
    which: Which
    share: Secret

    def to_bytes(self) -> bytes:
        """id ‖ which 1 ‖ share 33."""
        return self.owner + number(self.which, 1) + self.share.reveal_bytes()


@dataclass(frozen=True, slots=True)
class Unmask:
    """Site: one share of each dealer whose shares it holds, sorted by dealer."""

    shares: tuple[Revealed, ...]

    def to_bytes(self) -> bytes:
        """A list."""
        return listed(item.to_bytes() for item in self.shares)

    @staticmethod
    def from_bytes(body: bytes) -> Unmask:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "an unmask message")
        shares = []
        for _ in range(reader.count(SITE_ID_BYTES + 1 + SHARE_BYTES)):
            owner, which = reader.take(SITE_ID_BYTES), reader.number(1)
            if which not in set(Which):
                raise abort(AbortCode.BAD_MESSAGE, f"there is no secret of kind {which}")
            shares.append(Revealed(owner, Which(which), Secret(reader.take(SHARE_BYTES))))
        reader.end()
        return Unmask(tuple(shares))


def signed_list(messages: Sequence[Signed]) -> bytes:
    """The body of a key list, a survivors list or an ack list: the sites' messages as they signed them."""
    return listed(message.to_bytes() for message in messages)


def read_signed_list(body: bytes, kind: Kind, sid: bytes) -> tuple[Signed, ...]:
    """Messages of one kind and session, sorted by sender, each sender once.

    Raises:
        SecureSumFailed: "bad-message" or "bad-list".
    """
    reader = Reader(body, f"a list of {kind.label} messages")
    found = read_signed(reader, kind, sid)
    reader.end()
    return found


def read_signed(reader: Reader, kind: Kind, sid: bytes) -> tuple[Signed, ...]:
    """The same where more follows."""
    found = _read_messages(reader)
    if any(message.kind is not kind or message.sid != sid for message in found):
        raise abort(AbortCode.BAD_LIST, f"the list of {kind.label} messages holds one of another kind or session")
    require_sorted([message.sender for message in found], f"the list of {kind.label} messages")
    return found


def read_messages(body: bytes, what: str) -> tuple[Signed, ...]:
    """Signed messages of any kind and session, in any order. Raises SecureSumFailed("bad-message")."""
    reader = Reader(body, what)
    found = _read_messages(reader)
    reader.end()
    return found


def _read_messages(reader: Reader) -> tuple[Signed, ...]:
    return tuple(Signed.read(reader) for _ in range(reader.count(HEADER_BYTES + SIGNATURE_BYTES)))


def require_sorted(ids: Sequence[bytes], what: str) -> None:
    """Raise SecureSumFailed("bad-list") unless the ids are sorted and each is there once."""
    if list(ids) != sorted(set(ids)):
        twice = sorted(site for site, times in Counter(ids).items() if times > 1)
        raise abort(AbortCode.BAD_LIST, f"{what} is not sorted, or names a site twice", twice)


def _read_ids(reader: Reader) -> tuple[bytes, ...]:
    return tuple(reader.take(SITE_ID_BYTES) for _ in range(reader.count(SITE_ID_BYTES)))


def _read_sealed(reader: Reader) -> tuple[Sealed, ...]:
    return tuple(Sealed.read(reader) for _ in range(reader.count(SITE_ID_BYTES + SEALED_BYTES)))
