"""Who a site is in a secure sum, and what it knows of the work by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .policy import SumPolicy
from .signing import site_id


@dataclass(frozen=True, slots=True)
class Member:
    """Who this site is, and what it believes and allows.

    Attributes:
        key: its Ed25519 identity.
        federation: the federation it has joined.
        operator_key: the Ed25519 key, pinned at enrolment, that signs rosters.
        policy: its conditions.
    """

    key: Ed25519PrivateKey = field(repr=False)
    federation: str
    operator_key: bytes
    policy: SumPolicy

    @property
    def site(self) -> bytes:
        """Its id."""
        return site_id(self.key.public_key().public_bytes_raw())


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What the site has found out for itself about the work it is offered.

    Attributes:
        num_coordinates: length of the update it would send.
        layout_digest, model_digest, config_digest: SHA-256 of what it was given.
        model_used_in: run and round in which it has masked an update of this model before, or None.
        roster_version: the highest it has seen.
        group: the sites in whose session (``SiteState.descriptor.participants``) it has masked an update in this run
            before, where sums are over groups that do not change; empty before the first.
    """

    num_coordinates: int
    layout_digest: bytes
    model_digest: bytes
    config_digest: bytes
    model_used_in: tuple[str, int] | None = None
    roster_version: int = 0
    group: tuple[bytes, ...] = ()
