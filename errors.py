"""Every error foedus raises on purpose, with its exit status and its gRPC status.

FoedusError
  ConfigError                          a file, plan or argument is wrong
  EnrolmentError    TokenRefused, NotApproved, CertificateExpired
  ConnectionFailed  ServerUnreachable, PeerUntrusted, VersionMismatch
  AccessDenied      the caller may not do this
  NotFound          no such run, site, model or file
  ProtocolError     StaleRound, LayoutMismatch, MessageTooLarge, CorruptTransfer, InvalidUpdate
  RateLimited       the caller asks more often than it may
  RoundFailed       QuorumNotMet, TooFewSites, TooFewExamples, TooFewUpdates, SecureSumFailed
  TaskFailed        a site's own training code raised
  RunStateError     the run's state does not allow this
  PolicyRefused     BudgetExhausted, SiteVeto
  StoreError        SchemaTooNew, DiskFull, Corrupt
  Draining          the server takes no new work

A message says what happened, the value seen and the value expected; ``hint`` says what to do.
The class name travels on the wire, so that the SDK raises what the server raised.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_TIMEOUT = 4
EXIT_REFUSED = 5
EXIT_BUG = 70


class FoedusError(Exception):
    """Base of every deliberate error.

    Attributes:
        hint: one sentence that tells the reader what to do, or "".
        exit_status: what a command exits with when this error ends it.
        grpc_status: name of the ``grpc.StatusCode`` under which it travels.
    """

    exit_status: ClassVar[int] = EXIT_FAILED
    grpc_status: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def code(self) -> str:
        """The stable name under which the error is logged, sent and documented."""
        return type(self).__name__


class ConfigError(FoedusError):
    """A configuration file, plan or argument is malformed or impossible."""

    exit_status = EXIT_USAGE
    grpc_status = "INVALID_ARGUMENT"


class EnrolmentError(FoedusError):
    """Joining the federation failed."""

    exit_status = EXIT_UNREACHABLE
    grpc_status = "PERMISSION_DENIED"


class TokenRefused(EnrolmentError):
    """The join token is unknown, used, expired or bound to another site."""


class NotApproved(EnrolmentError):
    """The operator has not approved this site yet, or has suspended or revoked it."""


class CertificateExpired(EnrolmentError):
    """The caller's certificate is past its end, or the machine's clock is wrong."""

    grpc_status = "UNAUTHENTICATED"


class ConnectionFailed(FoedusError):
    """No usable connection to the server."""

    exit_status = EXIT_UNREACHABLE
    grpc_status = "UNAVAILABLE"


class ServerUnreachable(ConnectionFailed):
    """Nothing answered at the server's address."""


class PeerUntrusted(ConnectionFailed):
    """The peer's certificate was not issued by this federation's authority."""

    grpc_status = "UNAUTHENTICATED"


class VersionMismatch(ConnectionFailed):
    """Server and site are more than one minor version apart."""

    grpc_status = "FAILED_PRECONDITION"


class AccessDenied(FoedusError):
    """The caller's certificate does not allow this call."""

    exit_status = EXIT_REFUSED
    grpc_status = "PERMISSION_DENIED"


class NotFound(FoedusError):
    """The named run, site, model or file does not exist, or is not the caller's to see."""

    exit_status = EXIT_USAGE
    grpc_status = "NOT_FOUND"


class ProtocolError(FoedusError):
    """A message breaks the protocol."""

    grpc_status = "INVALID_ARGUMENT"


class StaleRound(ProtocolError):
    """The message belongs to a round that is over or was never opened for this site."""

    grpc_status = "FAILED_PRECONDITION"


class LayoutMismatch(ProtocolError):
    """Tensor names, shapes or dtypes differ from the run's layout."""


class MessageTooLarge(ProtocolError):
    """A declared or actual size exceeds its bound."""

    grpc_status = "RESOURCE_EXHAUSTED"


class CorruptTransfer(ProtocolError):
    """The bytes received do not have the digest that was declared."""

    grpc_status = "DATA_LOSS"


class InvalidUpdate(ProtocolError):
    """An update holds values or a weight that cannot be used."""


class RateLimited(FoedusError):
    """The caller exceeded its rate."""

    exit_status = EXIT_REFUSED
    grpc_status = "RESOURCE_EXHAUSTED"


class RoundFailed(FoedusError):
    """A round ended without a new model; the old model stands."""

    grpc_status = "ABORTED"


class QuorumNotMet(RoundFailed):
    """Fewer updates than the quorum arrived before the deadline."""


class TooFewSites(RoundFailed):
    """Fewer sites than the plan's minimum are connected and able to train."""


class TooFewExamples(RoundFailed):
    """The accepted updates rest on no example at all, so their mean is undefined."""


class TooFewUpdates(RoundFailed):
    """Fewer updates than the aggregation rule's theorem asks for at the plan's f."""


class SecureSumFailed(RoundFailed):
    """A secure sum was given up; no sum was learnt.

    Attributes:
        reason: the abort code, such as "too-few"; "" where it was not passed on.
        blamed: the ids of the sites at fault, if any are known.
    """

    def __init__(self, message: str, *, reason: str = "", blamed: tuple[bytes, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.blamed = blamed


class TaskFailed(FoedusError):
    """A site's own training code raised an error of its own."""


class RunStateError(FoedusError):
    """The run's state does not allow the requested change."""

    exit_status = EXIT_USAGE
    grpc_status = "FAILED_PRECONDITION"


class PolicyRefused(FoedusError):
    """A site's own policy forbids the request."""

    exit_status = EXIT_REFUSED
    grpc_status = "PERMISSION_DENIED"


class BudgetExhausted(PolicyRefused):
    """The site's budget of rounds (or privacy) is spent."""


class SiteVeto(PolicyRefused):
    """The site's policy does not allow this task, hour, cohort or code."""


class StoreError(FoedusError):
    """The server's or the site's own storage failed."""


class SchemaTooNew(StoreError):
    """The database was written by a newer foedus."""

    exit_status = EXIT_USAGE


class DiskFull(StoreError):
    """No space is left; nothing was half-written."""

    grpc_status = "RESOURCE_EXHAUSTED"


class Corrupt(StoreError):
    """A stored file does not have the digest under which it was recorded."""


class Draining(FoedusError):
    """The server is shutting down and takes no new work."""

    exit_status = EXIT_UNREACHABLE
    grpc_status = "UNAVAILABLE"


def error_classes() -> dict[str, type[FoedusError]]:
    """Every error class by the code under which it travels."""
    found: dict[str, type[FoedusError]] = {}
    pending = [FoedusError]
    while pending:
        error = pending.pop()
        found[error.__name__] = error
        pending.extend(error.__subclasses__())
    return found
