"""Who may call what. A method that is not listed may be called by nobody."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import grpc

from ..errors import AccessDenied, CertificateExpired, RateLimited
from ..privacy.certificates import certificate_key_sha256, expires, read_identity, verify_issued
from ..privacy.identity import Identity, Role
from .config import Limits
from .registry import Registry

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:  # the library's class takes no parameters at run time
    Context = grpc.aio.ServicerContext

ANYBODY: frozenset[Role] = frozenset({"anonymous", "site", "operator"})
SITE: frozenset[Role] = frozenset({"site"})
OPERATOR: frozenset[Role] = frozenset({"operator"})
MEMBER: frozenset[Role] = SITE | OPERATOR

_SERVICES: dict[str, dict[str, frozenset[Role]]] = {
    "foedus.v1.Enrolment": {"Join": ANYBODY, "Renew": MEMBER},
    "foedus.v1.Session": {"Open": SITE},
    "foedus.v1.Transfer": {"Download": SITE, "Upload": SITE},
    "foedus.v1.Operations": dict.fromkeys(
        (
            "SubmitRun",
            "ListRuns",
            "ShowRun",
            "ListRounds",
            "WatchRun",
            "ChangeRun",
            "FetchModel",
            "SubmitQuery",
            "ShowQuery",
            "ListQueries",
            "Invite",
            "ListSites",
            "ChangeSite",
            "ShowRoster",
            "PublishRoster",
            "Status",
            "Drain",
        ),
        OPERATOR,
    ),
    "grpc.health.v1.Health": {"Check": MEMBER, "Watch": MEMBER},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": OPERATOR},
}
ALLOWED = {f"/{service}/{method}": roles for service, methods in _SERVICES.items() for method, roles in methods.items()}

ANONYMOUS = Identity("anonymous", "anonymous", "anonymous")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, as proven by the certificate of the connection."""

    identity: Identity
    key_sha256: str
    expires: float
    origin: str

    @property
    def name(self) -> str:
        """The member's name."""
        return self.identity.name


caller: ContextVar[Caller] = ContextVar("caller")


@dataclass(slots=True)
class Bucket:
    """A token bucket: ``rate`` calls per second, up to ``burst`` at once."""

    rate: float
    burst: float
    level: float
    filled: float

    def take(self, now: float) -> bool:
        """Whether one more call is within the rate."""
        # A clock that was set back takes nothing away.
        self.level = min(self.burst, self.level + max(0.0, now - self.filled) * self.rate)
        self.filled = now
        if self.level < 1:
            return False
        self.level -= 1
        return True


@dataclass(slots=True)
class Access:
    """Decides each call, from the connection's certificate and the registry alone."""

    registry: Registry
    federation: str
    authority_pem: bytes
    limits: Limits
    now: Callable[[], float] = time.time
    _buckets: dict[str, Bucket] = field(default_factory=dict)
    _open: Counter[str] = field(default_factory=Counter)

    def admit(self, method: str, context: Context) -> Caller:
        """The caller of ``method``, if it may.

        Raises:
            AccessDenied, NotApproved, CertificateExpired, RateLimited: it may not.
        """
        who = self._identify(context)
        self.throttle(who)
        if who.identity.role not in ALLOWED.get(method, frozenset()):
            raise AccessDenied(
                f"{method.rsplit('/', 1)[-1]} is not for {who.identity.role} callers",
                hint="an operator's or site's certificate of this federation decides what you may do",
            )
        if who.expires <= self.now():
            raise CertificateExpired(
                f"the certificate of {who.identity.role} {who.name!r} has expired", hint="check the clock; join again"
            )
        if who.identity.role != "anonymous":
            self.registry.authorise(who.identity, who.key_sha256)
        return who

    def throttle(self, who: Caller) -> None:
        """Count one call or message against a caller's rate.

        Raises:
            RateLimited: it has used up its rate.
        """
        key, now = _limited_by(who), self.now()
        if len(self._buckets) > 10_000:
            self._buckets.clear()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(
                self.limits.calls_per_second, self.limits.burst, self.limits.burst, now
            )
        if not bucket.take(now):
            raise RateLimited(f"more than {self.limits.calls_per_second:g} calls per second", hint="slow down")

    @contextmanager
    def open_call(self, who: Caller) -> Iterator[None]:
        """Count a call while it is open.

        Raises:
            RateLimited: the caller has too many open already.
        """
        key = _limited_by(who)
        if self._open[key] >= self.limits.open_calls:
            raise RateLimited(f"{self.limits.open_calls} calls are open already", hint="end some of them")
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    def _identify(self, context: Context) -> Caller:
        pems = list(context.auth_context().get("x509_pem_cert", []))
        origin = context.peer() or ""
        if len(pems) != 1:
            return Caller(ANONYMOUS, "", float("inf"), origin)
        identity, key, end = _read(pems[0], self.authority_pem)
        if identity.federation != self.federation:
            identity = ANONYMOUS
        return Caller(identity, key, end, origin)


def _limited_by(who: Caller) -> str:
    # Anonymous callers share one rate per address, so that many of them are no way around it. A
    # member's is its key's own: whoever still holds a revoked key cannot use up the new one's.
    if who.identity.role == "anonymous":
        return f"anonymous {who.origin.rpartition(':')[0]}"
    return f"{who.identity.uri} {who.key_sha256}"


@lru_cache(maxsize=4096)
def _read(pem: bytes, authority_pem: bytes) -> tuple[Identity, str, float]:
    # The anonymous authority is trusted by TLS as well, and anybody can issue from it: what such a
    # certificate says is not believed.
    if not verify_issued(pem, authority_pem):
        return ANONYMOUS, certificate_key_sha256(pem), expires(pem)
    return read_identity(pem), certificate_key_sha256(pem), expires(pem)
