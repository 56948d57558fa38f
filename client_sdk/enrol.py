"""Joining a federation, and staying in it.

The keys are made here and never leave the home. The server is authenticated by the authority in
the invitation before anything is said to it. Every step may be repeated: after a crash, joining
again with the same invitation continues with the same keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import grpc

from ..clock import Clock
from ..configuration import load
from ..errors import (
    ConfigError,
    Draining,
    EnrolmentError,
    PeerUntrusted,
    RateLimited,
    ServerUnreachable,
)
from ..files import private_folder, write, write_private
from ..privacy.anonymous import anonymous_certificate
from ..privacy.certificates import (
    certifies,
    key_sha256,
    new_key_pem,
    new_request,
    read_identity,
    verify_issued,
)
from ..privacy.identity import Identity
from ..privacy.signing_keys import new_signing_key_pem, read_signing_key
from ..protos.channel import secure_channel
from ..protos.invitation import Invitation
from ..protos.v1 import enrolment_pb2, enrolment_pb2_grpc
from .calls import calling
from .config import SiteConfig, TaskEntry, site_toml
from .home import SiteHome
from .loading import load_tasks
from .policy import policy_toml

POLL_SECONDS: Final = 5.0
CALL_SECONDS: Final = 30.0


class Connect(Protocol):
    """``protos.channel.secure_channel``, or what a test puts in its place."""

    def __call__(
        self, address: str, *, authority_pem: bytes, key_pem: bytes, certificate_pem: bytes
    ) -> grpc.aio.Channel: ...


async def join(
    invitation: Invitation,
    home: SiteHome,
    *,
    clock: Clock,
    tasks: Mapping[str, TaskEntry] | None = None,
    pending: Callable[[str], None] = lambda _key_sha256: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    connect: Connect = secure_channel,
) -> Identity:
    """Enrol this home, waiting as long as it takes the operator to approve.

    ``tasks`` are written into ``site.toml``, and the policy allows them with exactly the code they
    have now. ``pending`` is called once, with the key's digest, if there is something to wait for:
    the operator sees the same digest and can compare it by telephone.

    Raises:
        ConfigError: a task cannot be loaded, or the home belongs to somebody else.
        TokenRefused, NotApproved: the server will not have it.
        PeerUntrusted: the server is not the one that invited, or answers with a wrong certificate.
        ServerUnreachable: nobody answers the first call; later ones are repeated.
    """
    tasks = tasks or {}
    if not verify_issued(invitation.authority_pem, invitation.authority_pem):
        raise ConfigError("the invitation carries no certificate of an authority", hint="ask for a new invitation")
    codes = {name: installed.code_sha256 for name, installed in load_tasks(tasks, home.path).items()}
    _require_home_of(invitation, home, tasks)

    private_folder(home.path)
    if not home.key.exists():
        write_private(home.key, new_key_pem())
    key = home.key.read_bytes()
    if not home.authority.exists():
        write(home.authority, invitation.authority_pem)

    signing_key = _signing_key(invitation, home)
    certificate = await _certificate(invitation, key, signing_key, clock, pending, sleep, connect)
    identity = _accepted(certificate, invitation.authority_pem, key)
    if (identity.role, identity.name) != (invitation.role, invitation.name):
        raise PeerUntrusted(
            f"the server certified {identity.role} {identity.name!r}, "
            f"the invitation is for {invitation.role} {invitation.name!r}"
        )
    write(home.certificate, certificate)
    if identity.role == "operator":
        write(home.address, f"{invitation.address}\n")
        return identity
    home.create()
    if not home.policy.exists():
        write(home.policy, policy_toml(codes))
    if not home.config.exists():
        write(home.config, site_toml(identity.name, identity.federation, invitation.address, tasks))
    return identity


async def renew(channel: grpc.aio.Channel, home: SiteHome) -> bytes:
    """Replace the home's certificate by a fresh one for the same key; returns it.

    ``channel`` is authenticated by the present certificate; connections made from now on should
    use the new one. ``privacy.certificates.renew_at`` says when this is due.

    Raises:
        NotApproved, CertificateExpired: the server no longer wants this site, or it came too late.
        PeerUntrusted: the server answered with a wrong certificate; the old one stays.
    """
    present = home.credentials()
    identity = read_identity(present.certificate_pem)
    request = new_request(present.key_pem, identity.name).decode()
    stub = enrolment_pb2_grpc.EnrolmentStub(channel)
    with calling():
        reply = await stub.Renew(enrolment_pb2.RenewRequest(request_pem=request), timeout=CALL_SECONDS)
    certificate: bytes = reply.certificate_pem.encode()
    renewed = _accepted(certificate, present.authority_pem, present.key_pem)
    if renewed != identity:
        raise PeerUntrusted(f"the server renewed {identity.uri} as {renewed.uri}")
    write(home.certificate, certificate)
    return certificate


def _require_home_of(invitation: Invitation, home: SiteHome, tasks: Mapping[str, TaskEntry]) -> None:
    """Refuse to mix two memberships in one folder."""
    other = ConfigError(
        f"{home.path} already belongs to another member or federation", hint="choose an empty folder with --home"
    )
    if home.authority.exists() and home.authority.read_bytes() != invitation.authority_pem:
        raise other
    pinned = home.pinned_roster_key()
    if pinned and invitation.roster_key and pinned != invitation.roster_key:
        raise ConfigError(
            f"the invitation names the roster key {invitation.roster_key.hex()}, {home.path} has pinned {pinned.hex()}",
            hint="ask the operator by telephone which is right; a site changes its roster key by leaving and joining",
        )
    if home.certificate.exists():
        identity = read_identity(home.certificate.read_bytes())
        if (identity.role, identity.name) != (invitation.role, invitation.name):
            raise other
    if home.config.exists():
        configured = load(SiteConfig, home.config)
        if (configured.name, configured.server) != (invitation.name, invitation.address):
            raise other
        missing = [name for name, entry in tasks.items() if configured.tasks.get(name) != entry]
        if missing:
            raise ConfigError(
                f"{home.config} exists and does not have the task {missing[0]} as given",
                hint="add the task there and allow it in policy.toml; joining again does not change either",
            )


def _signing_key(invitation: Invitation, home: SiteHome) -> bytes:
    """The public half of the key with which this site signs; with it, the roster key of the invitation is pinned."""
    if invitation.role != "site":
        return b""
    if not home.signing_key.exists():
        write_private(home.signing_key, new_signing_key_pem())
    if invitation.roster_key and not home.roster_key.exists():
        write(home.roster_key, f"{invitation.roster_key.hex()}\n")
    key = read_signing_key(home.signing_key.read_bytes(), str(home.signing_key))
    return key.public_key().public_bytes_raw()


async def _certificate(
    invitation: Invitation,
    key: bytes,
    signing_key: bytes,
    clock: Clock,
    pending: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]],
    connect: Connect,
) -> bytes:
    request = enrolment_pb2.JoinRequest(
        secret=invitation.secret,
        request_pem=new_request(key, invitation.name).decode(),
        signing_key=signing_key,
    )
    waiting = False
    while True:
        try:
            certificate = await _ask(invitation, request, clock, connect)
        except (ServerUnreachable, Draining, RateLimited):
            if not waiting:
                raise
            certificate = b""
        if certificate:
            return certificate
        if not waiting:
            pending(key_sha256(key))
            waiting = True
        await sleep(POLL_SECONDS)


async def _ask(invitation: Invitation, request: enrolment_pb2.JoinRequest, clock: Clock, connect: Connect) -> bytes:
    # A certificate for each question: an approval may take longer than an anonymous one lives.
    own_key, own_certificate = anonymous_certificate(clock.now())
    async with connect(
        invitation.address,
        authority_pem=invitation.authority_pem,
        key_pem=own_key,
        certificate_pem=own_certificate,
    ) as channel:
        with calling():
            stub = enrolment_pb2_grpc.EnrolmentStub(channel)
            reply = await stub.Join(request, timeout=CALL_SECONDS)
    certificate: bytes = reply.certificate_pem.encode()
    return certificate


def _accepted(certificate: bytes, authority: bytes, key: bytes) -> Identity:
    """The identity in a certificate the server sent, if it is one of the federation for our key."""
    if not verify_issued(certificate, authority):
        raise PeerUntrusted("the server answered with a certificate that the federation's authority did not issue")
    if not certifies(certificate, key):
        raise EnrolmentError("the server answered with a certificate for another key", hint="join again")
    return read_identity(certificate)
