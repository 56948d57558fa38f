"""The Ed25519 keys with which sites sign in secure sums, as the database has them: one key, one member."""

from __future__ import annotations

from ..errors import EnrolmentError, NotFound
from ..privacy.secagg.keys import KEY_BYTES
from ..privacy.secagg.signing import site_id
from .store import Store


def active_keys(store: Store) -> dict[str, bytes]:
    """The key of each active site that has one, by name."""
    rows = store.query(
        "SELECT name, signing_key FROM members WHERE role = 'site' AND state = 'active' "
        "AND signing_key IS NOT NULL ORDER BY name"
    )
    return {row["name"]: row["signing_key"] for row in rows}


def signer(store: Store, id: bytes) -> str:
    """The name of the site that signs under an id, whatever its state; a living one before a revoked one.

    Raises:
        NotFound: no site does.
    """
    rows = store.query(
        "SELECT name, signing_key FROM members WHERE role = 'site' AND signing_key IS NOT NULL "
        "ORDER BY state = 'revoked', name"
    )
    for row in rows:
        if site_id(row["signing_key"]) == id:
            name: str = row["name"]
            return name
    raise NotFound(f"no site signs under the id {id.hex()}")


def require_own(store: Store, key: bytes, role: str, name: str) -> None:
    """Let a member bring a key, or none (no bytes).

    Raises:
        EnrolmentError: it has not 32 bytes, or another member that is not revoked has it. Whose it is
            is not said: sites do not learn each other's names.
    """
    if len(key) not in (0, KEY_BYTES):
        raise EnrolmentError(
            f"the signing key has {len(key)} bytes, expected {KEY_BYTES}",
            hint="join with a foedus of the server's version",
        )
    others = store.query(
        "SELECT 1 FROM members WHERE signing_key = ? AND state <> 'revoked' AND NOT (role = ? AND name = ?)",
        key,
        role,
        name,
    )
    if others:
        raise EnrolmentError(
            f"another member already signs with the key {site_id(key).hex()}, expected one of your own",
            hint="join with an empty --home: a copied one holds the keys of the site it was copied from",
        )
