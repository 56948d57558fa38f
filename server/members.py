"""Who can belong to the federation, as a record."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from ..privacy.identity import Role


class MemberState(StrEnum):
    """Where a member stands."""

    INVITED = "invited"
    PENDING = "pending"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Member:
    """A site or an operator.

    ``key_sha256`` is what people compare by telephone. ``signing_key`` is the Ed25519 key (32 bytes)
    with which a site signs in secure sums; empty if it takes part in none.
    """

    name: str
    role: Role
    state: MemberState
    request_pem: str
    key_sha256: str
    origin: str
    certificate_expires: float | None
    last_seen: float | None
    signing_key: bytes = b""


def member_of(row: sqlite3.Row) -> Member:
    """The member in a row of the table."""
    return Member(
        name=row["name"],
        role=row["role"],
        state=MemberState(row["state"]),
        request_pem=row["request_pem"],
        key_sha256=row["key_sha256"],
        origin=row["origin"],
        certificate_expires=row["certificate_expires"],
        last_seen=row["last_seen"],
        signing_key=row["signing_key"] or b"",
    )
