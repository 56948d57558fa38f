"""What an operator signs: the keys that the server lists, beside the roster that is in force.

The server is not believed here: ids are worked out from the keys, names must be names, and the roster
in force counts only if this operator's key has signed it. That a key is the site's own, only people can
tell, who compare its id by telephone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ProtocolError, SecureSumFailed
from ..privacy.certificates import read_identity
from ..privacy.identity import Identity
from ..privacy.secagg.keys import KEY_BYTES
from ..privacy.secagg.roster import Roster, signed_roster
from ..privacy.secagg.signing import site_id
from ..protos.v1 import operations_pb2, operations_pb2_grpc
from .credentials import OperatorHome
from .members import MemberState

Change = Literal["", "new", "gone"]
MAX_VERSION: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Claim:
    """What the server says of a site; it may have no key."""

    name: str
    public_key: bytes
    state: MemberState


@dataclass(frozen=True, slots=True)
class Listed:
    """A key, the site that the server says has it, and how it stands to the roster in force."""

    name: str
    public_key: bytes
    change: Change

    @property
    def key_id(self) -> str:
        """What people compare by telephone."""
        return site_id(self.public_key).hex()


@dataclass(frozen=True, slots=True)
class Draft:
    """A roster before it is signed.

    Attributes:
        federation, version: as they will be signed.
        listed: every active site with a key, by name, and the keys that are in force and will be gone.
        without_key: the active sites that have none, and take no part in secure sums.
        in_force: whether the roster before it is signed by this operator's key.
    """

    federation: str
    version: int
    listed: tuple[Listed, ...]
    without_key: tuple[str, ...]
    in_force: bool

    @property
    def public_keys(self) -> tuple[bytes, ...]:
        """The keys that will be signed."""
        return tuple(listed.public_key for listed in self.listed if listed.change != "gone")

    @property
    def changes(self) -> bool:
        """Whether there is anything to sign."""
        return not self.in_force or any(listed.change for listed in self.listed)


async def draft(stub: operations_pb2_grpc.OperationsStub, home: OperatorHome, operator_key: bytes) -> Draft:
    """The next roster, from what the server lists now; the federation is that of the operator's certificate.

    Raises:
        ProtocolError: the server's list cannot be signed.
    """
    federation = read_identity(home.certificate.read_bytes()).federation
    published = await show(stub)
    reply = await stub.ListSites(operations_pb2.ListSitesRequest())
    return compare(federation, operator_key, reply.sites, published)


async def show(stub: operations_pb2_grpc.OperationsStub) -> Roster | None:
    """The published roster, if there is one; its signature is not checked.

    Raises:
        ProtocolError: what the server shows is no roster.
    """
    reply = await stub.ShowRoster(operations_pb2.ShowRosterRequest())
    try:
        return Roster.from_bytes(reply.signed) if reply.signed else None
    except SecureSumFailed as error:
        raise ProtocolError(f"the server shows something that is no roster: {error}") from None


async def publish(stub: operations_pb2_grpc.OperationsStub, drawn: Draft, key: Ed25519PrivateKey) -> Roster:
    """Sign a draft and publish it. The same draft gives the same bytes, so that this may be repeated.

    Raises:
        RunStateError: the members, or the roster, have changed meanwhile.
        ProtocolError: the server answers with another roster.
    """
    roster = signed_roster(key, drawn.federation, drawn.version, drawn.public_keys)
    signed = roster.to_bytes()
    reply = await stub.PublishRoster(operations_pb2.Roster(version=roster.version, signed=signed))
    if reply.signed != signed:
        raise ProtocolError(f"the server answers with another roster than version {roster.version} just signed")
    return roster


def compare(
    federation: str, operator_key: bytes, sites: Iterable[operations_pb2.Site], published: Roster | None
) -> Draft:
    """A draft from the server's members and its newest roster.

    Raises:
        ProtocolError: a key or a version cannot be right.
        ConfigError: a name cannot be one.
    """
    version = published.version + 1 if published else 1
    if version > MAX_VERSION:
        raise ProtocolError(f"the server shows a roster of version {version - 1}, expected less than 2^62")
    in_force = published is not None and signed_by(published, operator_key, federation)
    before = set(published.public_keys) if published and in_force else set()
    members = claimed(federation, sites)
    active = [member for member in members if member.state is MemberState.ACTIVE]
    now = [member.public_key for member in active if member.public_key]
    if len(set(now)) < len(now):
        raise ProtocolError("the server lists one key for two sites, expected each site's own")
    listed = [Listed(m.name, m.public_key, "" if m.public_key in before else "new") for m in active if m.public_key]
    names = {member.public_key: member.name for member in members}
    listed += [Listed(names.get(key, "?"), key, "gone") for key in sorted(before - set(now), key=site_id)]
    return Draft(federation, version, tuple(listed), tuple(m.name for m in active if not m.public_key), in_force)


def claimed(federation: str, sites: Iterable[operations_pb2.Site]) -> list[Claim]:
    """The sites among the members that the server lists, by name.

    Raises:
        ProtocolError: a key or a state cannot be one.
        ConfigError: a name cannot be one.
    """
    found = []
    for site in sites:
        if site.role != "site":
            continue
        name, key = Identity(federation, "site", site.name).name, site.signing_key
        if len(key) not in (0, KEY_BYTES) or site.state not in set(MemberState):
            raise ProtocolError(f"the server lists {name} with a key of {len(key)} bytes, {site.state!r:.40}")
        found.append(Claim(name, key, MemberState(site.state)))
    return sorted(found, key=lambda claim: claim.name)


def signed_by(roster: Roster, operator_key: bytes, federation: str) -> bool:
    """Whether an operator's key has signed a roster of this federation."""
    try:
        roster.verify(operator_key, federation=federation, at_least=0)
    except SecureSumFailed:
        return False
    return True
