"""The federation's certificate authority, and the server's own certificate."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import grpc

from ..clock import Clock
from ..privacy.anonymous import anonymous_authority_pem
from ..privacy.certificates import (
    expires,
    issue,
    new_key_pem,
    new_request,
    renew_at,
    request_key_sha256,
)
from ..privacy.identity import Identity, Role
from ..protos.address import split_address
from .config import ServerConfig, ServerHome
from .registry import Registry
from .telemetry import Metrics

Fetcher = Callable[[], grpc.ServerCertificateConfiguration]


@dataclass(slots=True)
class Authority:
    """Issues certificates and notes them in the registry."""

    home: ServerHome
    config: ServerConfig
    clock: Clock
    registry: Registry
    metrics: Metrics
    certificate_pem: bytes = field(init=False)
    _key_pem: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.certificate_pem = self.home.authority.read_bytes()
        self._key_pem = self.home.authority_key.read_bytes()

    def certify(self, role: Role, name: str, request_pem: bytes) -> bytes:
        """A certificate for a member's request.

        Raises:
            EnrolmentError: the request is malformed.
        """
        identity = Identity(self.config.federation, role, name)
        certificate = self._issue(identity, request_pem)
        end = expires(certificate)
        self.registry.certified(role, name, key_sha256=request_key_sha256(request_pem), expires=end)
        if role == "site":
            self.metrics.certificate_issued(name, end)
        return certificate

    def server_credentials(self) -> grpc.ServerCredentials:
        """Mutual TLS for the server's port; its own certificate is made anew when two thirds are over.

        TLS trusts two roots: the federation's, and the public one that callers without a
        certificate come with. ``access`` believes only what the first has signed.
        """
        roots = self.certificate_pem + anonymous_authority_pem()
        key_pem, certificate = self._own_certificate()
        due = renew_at(certificate)

        def configuration() -> grpc.ServerCertificateConfiguration | None:
            nonlocal key_pem, certificate, due
            if self.clock.now() < due:
                return None
            key_pem, certificate = self._own_certificate()
            due = renew_at(certificate)
            return _configuration(key_pem, certificate, roots)

        # The stubs do not know that None means "no change".
        return grpc.dynamic_ssl_server_credentials(
            _configuration(key_pem, certificate, roots),
            cast("Fetcher", configuration),
            require_client_authentication=True,
        )

    def _own_certificate(self) -> tuple[bytes, bytes]:
        key_pem = new_key_pem()
        hosts = dict.fromkeys([split_address(self.config.address)[0], *self.config.hostnames])
        identity = Identity(self.config.federation, "server", "server")
        return key_pem, self._issue(identity, new_request(key_pem, "server"), tuple(hosts))

    def _issue(self, identity: Identity, request_pem: bytes, hostnames: tuple[str, ...] = ()) -> bytes:
        return issue(
            self._key_pem,
            self.certificate_pem,
            request_pem,
            identity,
            self.clock.now(),
            self.config.certificate_seconds,
            hostnames,
        )


def _configuration(key_pem: bytes, certificate: bytes, roots: bytes) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key_pem, certificate)], root_certificates=roots)


def is_loopback(address: str) -> bool:
    """Whether an address ``host:port`` can only be reached from this machine."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
