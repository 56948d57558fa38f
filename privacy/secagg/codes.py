"""Why a secure sum is given up, or one site's message refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ...errors import SecureSumFailed


class AbortCode(StrEnum):
    """The names under which a refusal is sent, logged and documented."""

    POLICY = "policy"
    BAD_MESSAGE = "bad-message"
    LATE = "late"
    BAD_LIST = "bad-list"
    BAD_GROUPING = "bad-grouping"
    BAD_KEY = "bad-key"
    BAD_SIGNATURE = "bad-signature"
    NOT_IN_ROSTER = "not-in-roster"
    TOO_FEW = "too-few"
    BAD_SHARE = "bad-share"
    BAD_DEALER = "bad-dealer"
    UNDECODABLE = "undecodable"
    SELECTION_TOO_SMALL = "selection-too-small"
    SKETCH_MISMATCH = "sketch-mismatch"
    ALREADY_REVEALED = "already-revealed"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was refused and why, as a value.

    Attributes:
        code: the name of the reason.
        reason: one sentence for people; it never holds a secret.
        blamed: the sites whose message was at fault; empty where it is the server's.
    """

    code: AbortCode
    reason: str
    blamed: tuple[bytes, ...] = ()


def abort(code: AbortCode, reason: str, blamed: Iterable[bytes] = ()) -> SecureSumFailed:
    """The exception that ends a session, or one message of it."""
    return SecureSumFailed(reason, reason=code.value, blamed=tuple(blamed))


def refusal_of(error: SecureSumFailed) -> Refusal:
    """The same as a value."""
    return Refusal(AbortCode(error.reason), str(error), error.blamed)
