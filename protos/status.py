"""Errors across the wire: what the server raises, the SDK raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote

import grpc

from ..errors import (
    AccessDenied,
    ConnectionFailed,
    CorruptTransfer,
    FoedusError,
    MessageTooLarge,
    NotFound,
    PeerUntrusted,
    ProtocolError,
    RateLimited,
    RoundFailed,
    RunStateError,
    ServerUnreachable,
    VersionMismatch,
    error_classes,
)

CODE_KEY: Final = "foedus-code"
HINT_KEY: Final = "foedus-hint"
TIME_KEY: Final = "foedus-time"  # the server's clock, Unix seconds, in the trailing metadata of every admitted call
MAX_MESSAGE_LENGTH: Final = 2000
MAX_HINT_LENGTH: Final = 500

_PRINTABLE = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")

# What a status means when no foedus server attached a code: gRPC itself, or a proxy between us.
_BARE: dict[grpc.StatusCode, type[FoedusError]] = {
    grpc.StatusCode.ABORTED: RoundFailed,
    grpc.StatusCode.ALREADY_EXISTS: RunStateError,
    grpc.StatusCode.CANCELLED: ConnectionFailed,
    grpc.StatusCode.DATA_LOSS: CorruptTransfer,
    grpc.StatusCode.DEADLINE_EXCEEDED: ServerUnreachable,
    grpc.StatusCode.FAILED_PRECONDITION: RunStateError,
    grpc.StatusCode.INVALID_ARGUMENT: ProtocolError,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.OUT_OF_RANGE: ProtocolError,
    grpc.StatusCode.PERMISSION_DENIED: AccessDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RateLimited,
    grpc.StatusCode.UNAUTHENTICATED: PeerUntrusted,
    grpc.StatusCode.UNAVAILABLE: ServerUnreachable,
    grpc.StatusCode.UNIMPLEMENTED: VersionMismatch,
}
_HANDSHAKE_WORDS = ("certificate", "handshake", "ssl", "tls alert", "peer name", "verification")


def to_status(error: FoedusError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Status, message and trailing metadata with which a servicer ends the call."""
    metadata = [(CODE_KEY, error.code)]
    if error.hint:
        metadata.append((HINT_KEY, quote(error.hint[:MAX_HINT_LENGTH], safe=_PRINTABLE)))
    return grpc.StatusCode[error.grpc_status], str(error)[:MAX_MESSAGE_LENGTH], tuple(metadata)


def from_rpc_error(error: grpc.RpcError) -> FoedusError:
    """The error the server raised, or the nearest one for a failure of the transport itself.

    A code this version does not know (a newer server's) is read by its status.
    """
    status, details, metadata = _parts(error)
    named = error_classes().get(metadata.get(CODE_KEY, ""))
    hint = unquote(metadata.get(HINT_KEY, ""))
    if named is not None:
        return named(details, hint=hint)
    if status is grpc.StatusCode.UNAVAILABLE and any(word in details.lower() for word in _HANDSHAKE_WORDS):
        return PeerUntrusted(
            f"the secure connection was refused: {details}",
            hint="check that this certificate and the server belong to the same federation, and both clocks",
        )
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return MessageTooLarge(details)
    kind = _BARE.get(status, FoedusError)
    if kind is ServerUnreachable:
        return kind(f"the server did not answer: {details}", hint=hint or _unreachable_hint(details))
    return kind(details or f"the call ended with {status.name}", hint=hint)


def _unreachable_hint(details: str) -> str:
    # All that TLS 1.3 tells a client whose certificate was refused is that the connection is gone.
    if "failed to connect" in details and "Socket closed" in details:
        return "it hangs up at once: is our certificate expired or revoked, or is a proxy in between?"
    return "check its address, the network and any proxy"


def _parts(error: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Works on ``grpc.aio.AioRpcError`` and on blocking calls, which are both error and call."""
    if not callable(getattr(error, "code", None)):
        return grpc.StatusCode.UNKNOWN, str(error), {}
    pairs: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()
    metadata = {key: value for key, value in pairs if isinstance(value, str)}
    return error.code() or grpc.StatusCode.UNKNOWN, error.details() or "", metadata
