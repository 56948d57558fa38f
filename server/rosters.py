"""The published rosters: kept and handed on by the server, signed by a key that it does not have."""

from __future__ import annotations

import hashlib
from typing import Final

from ..clock import Clock
from ..errors import ConfigError, MessageTooLarge, NotFound, ProtocolError, RunStateError, SecureSumFailed
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.signing import site_id
from .journal import append_event
from .registry import Registry
from .store import Store

MAX_ROSTER_BYTES: Final = 512 << 10  # 16 000 sites; with a descriptor it fits into one message of a session


class Rosters:
    """Queries and the one named transaction over rosters.

    The server checks what it can know. Whether the operator has signed is for each site to say, which
    alone has pinned the operator's key: a server that checked with a key of its own choice would add nothing.
    """

    def __init__(self, store: Store, clock: Clock, registry: Registry, federation: str) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._federation = federation

    def latest(self) -> Roster | None:
        """The newest roster; None where none was published."""
        rows = self._store.query("SELECT signed FROM rosters ORDER BY version DESC LIMIT 1")
        return Roster.from_bytes(rows[0]["signed"]) if rows else None

    def roster(self, version: int) -> Roster:
        """The roster of a version.

        Raises:
            NotFound: none of this version was published.
        """
        rows = self._store.query("SELECT signed FROM rosters WHERE version = ?", version)
        if not rows:
            raise NotFound(f"there is no roster of version {version}", hint="'foedus roster show' has the newest")
        return Roster.from_bytes(rows[0]["signed"])

    def publish(self, signed: bytes) -> Roster:
        """Take a roster as the newest; the newest itself once more is answered as done.

        Args:
            signed: as ``Roster.to_bytes`` writes it.

        Raises:
            MessageTooLarge, ProtocolError: it is no roster.
            ConfigError: it is of another federation.
            RunStateError: its version does not follow, or a key in it is that of no active site.
        """
        roster = _read(signed)
        latest = self.latest()
        if latest is not None and signed == latest.to_bytes():
            return latest
        self._require_next(roster, latest.version + 1 if latest else 1)
        digest = hashlib.sha256(signed).hexdigest()
        with self._store.transaction(f"publishing roster {roster.version}") as db:
            db.execute("INSERT INTO rosters VALUES (?, ?)", (roster.version, signed))
            fields = {"version": roster.version, "sha256": digest, "sites": len(roster.public_keys)}
            append_event(db, self._clock.now(), "roster_published", fields)
        return roster

    def _require_next(self, roster: Roster, version: int) -> None:
        if roster.federation != self._federation:
            raise ConfigError(
                f"the roster is of federation {roster.federation!r:.80}, expected {self._federation!r}",
                hint="name this federation's roster key and operator folder",
            )
        if roster.version != version:
            raise RunStateError(
                f"the roster has version {roster.version}, expected {version}",
                hint="another one was published meanwhile: 'foedus roster sign' shows what changed",
            )
        active = set(self._registry.signing_keys().values())
        for key in roster.public_keys:
            if key not in active:
                raise RunStateError(
                    f"the roster lists the key {site_id(key).hex()}, which is that of no active site",
                    hint="'foedus roster sign' lists the active sites and signs again",
                )


def _read(signed: bytes) -> Roster:
    if len(signed) > MAX_ROSTER_BYTES:
        raise MessageTooLarge(f"the roster has {len(signed)} bytes, at most {MAX_ROSTER_BYTES} are taken")
    try:
        return Roster.from_bytes(signed)
    except SecureSumFailed as error:
        raise ProtocolError(f"this is no roster: {error}", hint="publish what 'foedus roster sign' makes") from None
