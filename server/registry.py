"""Who belongs to the federation: invitations, members (sites and operators) and their states.

invited → pending → active ⇄ suspended → revoked. A revoked name can be invited again; its old
certificates stay refused because a member is known by its key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from ..clock import Clock
from ..errors import AccessDenied, NotApproved, NotFound, RunStateError, TokenRefused
from ..privacy.identity import Identity, Role
from ..privacy.secrets import Secret, matches, new_token, token_hash
from .journal import append_event
from .members import Member, MemberState, member_of
from .signing_keys import active_keys, require_own, signer
from .store import Store


@dataclass(frozen=True, slots=True)
class Standing:
    """What the rounds since a site was last approved have made of its updates.

    ``rejection_rate`` is the exponentially weighted share of them that were rejected, ``rounds_judged``
    how many rounds it rests on.
    """

    rejection_rate: float = 0.0
    rounds_judged: int = 0


_CHANGES = {
    "approve": (MemberState.ACTIVE, (MemberState.PENDING, MemberState.SUSPENDED)),
    "suspend": (MemberState.SUSPENDED, (MemberState.ACTIVE,)),
    "revoke": (MemberState.REVOKED, (MemberState.PENDING, MemberState.ACTIVE, MemberState.SUSPENDED)),
}


class Registry:
    """Queries and named transactions over members; every change is journalled with it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # Every call and every chunk asks who is calling; only changes made here can change the answer.
        self._known: dict[tuple[str, str], Member] = {}

    def members(self) -> list[Member]:
        """Every member, and every open invitation as a member in state invited."""
        rows = self._store.query("SELECT * FROM members ORDER BY role DESC, name")
        known = [member_of(row) for row in rows]
        names = {(member.role, member.name) for member in known}
        invited = self._store.query(
            "SELECT * FROM invitations WHERE key_sha256 IS NULL AND expires > ? ORDER BY name", self._clock.now()
        )
        waiting = {(row["role"], row["name"]): row for row in invited if (row["role"], row["name"]) not in names}
        return known + [
            Member(row["name"], row["role"], MemberState.INVITED, "", "", "", None, None) for row in waiting.values()
        ]

    def member(self, role: str, name: str) -> Member:
        """One member.

        Raises:
            NotFound: there is none of this role and name.
        """
        found = self._known.get((role, name))
        if found is None:
            rows = self._store.query("SELECT * FROM members WHERE role = ? AND name = ?", role, name)
            if not rows:
                raise NotFound(f"there is no {role} {name!r}", hint="'foedus server sites ls' lists them")
            found = self._known[role, name] = member_of(rows[0])
        return found

    def active_sites(self) -> set[str]:
        """The names of the sites that may take part."""
        rows = self._store.query("SELECT name FROM members WHERE role = 'site' AND state = 'active'")
        return {row["name"] for row in rows}

    def signing_keys(self) -> Mapping[str, bytes]:
        """The Ed25519 key of each active site that has one, by name."""
        return active_keys(self._store)

    def site_of(self, id: bytes) -> str:
        """The name of the site, active or not, that signs under an id.

        Raises:
            NotFound: no site does.
        """
        return signer(self._store, id)

    def invite(self, name: str, role: Role, *, lifetime_seconds: float, approved: bool) -> tuple[Secret, float]:
        """Make a one-time secret for a name; the secret, and when it expires.

        An earlier invitation of the same name that nobody has used is void from now on: at most
        one can ever make a member, so none is left to replace one that was suspended or revoked.

        Raises:
            RunStateError: the name belongs to a living member.
        """
        secret, expires = new_token(), self._clock.now() + lifetime_seconds
        taken = self._store.query(
            "SELECT state FROM members WHERE role = ? AND name = ? AND state <> 'revoked'", role, name
        )
        if taken:
            raise RunStateError(
                f"there already is a {role} {name!r}, {taken[0]['state']}", hint="revoke it first, or take another name"
            )
        with self._store.transaction(f"inviting {name}") as db:
            db.execute("DELETE FROM invitations WHERE role = ? AND name = ? AND key_sha256 IS NULL", (role, name))
            db.execute(
                "INSERT INTO invitations VALUES (?, ?, ?, ?, ?, NULL)",
                (token_hash(secret), name, role, int(approved), expires),
            )
            self._event(db, f"{role}_invited", name=name, approved=approved, expires=expires)
        return secret, expires

    def redeem(
        self, secret: Secret, *, request_pem: str, key_sha256: str, origin: str, signing_key: bytes = b""
    ) -> Member:
        """Use an invitation with a key. With the same keys it may be used again, to fetch the decision.

        A member that joined without a signing key may bring one when it asks again; none is ever replaced.

        Once it has expired it fetches no more than the first certificate, should the approval come
        so late: whoever finds it afterwards together with an old key gets nothing for it.

        Raises:
            TokenRefused: unknown, expired, or already used with another key.
            EnrolmentError: the signing key cannot be used (``signing_keys.require_own``).
            NotApproved: the member has been suspended or revoked meanwhile.
        """
        found = self._find_invitation(secret)
        name, role = found["name"], found["role"]
        require_own(self._store, signing_key, role, name)
        if found["key_sha256"] is None:
            if found["expires"] <= self._clock.now():
                raise TokenRefused(f"the invitation of {name!r} has expired", hint="ask the operator for a new one")
            state = MemberState.ACTIVE if found["approved"] else MemberState.PENDING
            with self._store.transaction(f"enrolling {name}") as db:
                db.execute(
                    "UPDATE invitations SET key_sha256 = ? WHERE secret_sha256 = ?", (key_sha256, token_hash(secret))
                )
                db.execute(
                    "INSERT OR REPLACE INTO members (name, role, state, request_pem, key_sha256, origin, signing_key) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (name, role, state, request_pem, key_sha256, origin, signing_key or None),
                )
                signs = {"signing_key": signing_key.hex()} if signing_key else {}
                self._event(db, f"{role}_joined", name=name, key=key_sha256, origin=origin, state=state, **signs)
        elif found["key_sha256"] != key_sha256:
            raise TokenRefused(
                f"the invitation of {name!r} was already used with another key",
                hint="if that was not you, tell the operator at once; ask for a new invitation",
            )
        member = self.member(role, name)
        if member.key_sha256 != key_sha256:
            raise TokenRefused(f"{name!r} has joined again with a newer invitation", hint="use that one's home folder")
        if member.state in (MemberState.SUSPENDED, MemberState.REVOKED):
            raise NotApproved(f"{role} {name!r} is {member.state}", hint="ask the operator")
        if member.certificate_expires is not None and found["expires"] <= self._clock.now():
            raise TokenRefused(
                f"the invitation of {name!r} has expired, and its certificate was issued",
                hint="the certificate is in the home folder that joined; if it is lost, ask for a new invitation",
            )
        return self._with_signing_key(member, signing_key)

    def standing(self, site: str) -> Standing:
        """A site's standing; that of a site which no round has judged is 0 of 0."""
        rows = self._store.query(
            "SELECT rejection_rate, rounds_judged FROM members WHERE role = 'site' AND name = ?", site
        )
        return Standing(**rows[0]) if rows else Standing()

    def distrusted(self, above: float, after_rounds: int) -> dict[str, Standing]:
        """The active sites whose rejection rate exceeds ``above`` after at least ``after_rounds`` rounds."""
        rows = self._store.query(
            "SELECT name, rejection_rate, rounds_judged FROM members WHERE role = 'site' AND state = 'active' "
            "AND rejection_rate > ? AND rounds_judged >= ? ORDER BY name",
            above,
            after_rounds,
        )
        return {row["name"]: Standing(row["rejection_rate"], row["rounds_judged"]) for row in rows}

    def change(self, role: str, name: str, action: str, reason: str = "") -> Member:
        """Approve, suspend or revoke a member; what it is already, it stays, so that asking again is harmless.

        Whoever is approved begins anew: no earlier round is held against it. ``reason`` is journalled,
        where the server acts of its own accord.

        Raises:
            NotFound: no such member.
            RunStateError: its state does not allow the action, or the action is unknown.
        """
        if action not in _CHANGES:
            raise RunStateError(f"{action!r:.40} is not one of {', '.join(_CHANGES)}")
        to, allowed = _CHANGES[action]
        member = self.member(role, name)
        if member.state is to:
            return member
        if member.state not in allowed:
            raise RunStateError(f"{role} {name!r} is {member.state}, so it cannot be made {to}")
        with self._store.transaction(f"making {name} {to}") as db:
            db.execute("UPDATE members SET state = ? WHERE role = ? AND name = ?", (to, role, name))
            if to is MemberState.ACTIVE:
                db.execute(
                    "UPDATE members SET rejection_rate = 0, rounds_judged = 0 WHERE role = ? AND name = ?", (role, name)
                )
            self._event(db, f"{role}_{to}", name=name, **({"reason": reason} if reason else {}))
        return self.member(role, name)

    def authorise(self, identity: Identity, key_sha256: str) -> None:
        """Let an authenticated caller in, if it is an active member with this very key.

        Raises:
            AccessDenied, NotApproved: it is not.
        """
        try:
            member = self.member(identity.role, identity.name)
        except NotFound:
            raise AccessDenied(f"{identity.role} {identity.name!r} is not a member of this federation") from None
        if member.state is not MemberState.ACTIVE:
            raise NotApproved(f"{identity.role} {identity.name!r} is {member.state}", hint="ask the operator")
        if member.key_sha256 != key_sha256:
            raise AccessDenied(f"{identity.role} {identity.name!r} has enrolled again with another key")

    def certified(self, role: str, name: str, *, key_sha256: str, expires: float) -> None:
        """Note the certificate a member was last given, and the key in it."""
        with self._store.transaction(f"certifying {name}") as db:
            db.execute(
                "UPDATE members SET key_sha256 = ?, certificate_expires = ? WHERE role = ? AND name = ?",
                (key_sha256, expires, role, name),
            )
            self._event(db, f"{role}_certified", name=name, key=key_sha256, expires=expires)

    def add(self, name: str, role: Role, *, key_sha256: str, expires: float) -> None:
        """Record a member made on the server itself (its first operator)."""
        with self._store.transaction(f"adding {name}") as db:
            db.execute(
                "INSERT OR REPLACE INTO members (name, role, state, request_pem, key_sha256, origin, "
                "certificate_expires) VALUES (?, ?, 'active', '', ?, 'this machine', ?)",
                (name, role, key_sha256, expires),
            )
            self._event(db, f"{role}_added", name=name, key=key_sha256)

    def saw(self, name: str, when: float) -> None:
        """Note when a site was last connected."""
        with self._store.transaction(f"noting {name}") as db:
            db.execute("UPDATE members SET last_seen = ? WHERE role = 'site' AND name = ?", (when, name))
        self._known.clear()

    def _with_signing_key(self, member: Member, signing_key: bytes) -> Member:
        if signing_key in (b"", member.signing_key):
            return member
        if member.signing_key:
            raise TokenRefused(
                f"the invitation of {member.name!r} was already used with another signing key",
                hint="put back the signing.pem with which this home joined, or ask for a new invitation",
            )
        with self._store.transaction(f"noting the signing key of {member.name}") as db:
            db.execute(
                "UPDATE members SET signing_key = ? WHERE role = ? AND name = ?",
                (signing_key, member.role, member.name),
            )
            self._event(db, f"{member.role}_signs", name=member.name, signing_key=signing_key.hex())
        return self.member(member.role, member.name)

    def _find_invitation(self, secret: Secret) -> sqlite3.Row:
        # Every stored hash is compared, each in constant time: how long this takes says nothing
        # about which one came near.
        found = None
        for row in self._store.query("SELECT * FROM invitations"):
            if matches(secret, row["secret_sha256"]):
                found = row
        if found is None:
            raise TokenRefused("the server does not know this invitation", hint="ask the operator for a new one")
        return found

    def _event(self, db: sqlite3.Connection, event: str, /, **fields: object) -> None:
        self._known.clear()
        append_event(db, self._clock.now(), event, fields)


def judge_sites(db: sqlite3.Connection, rejected: Mapping[str, bool], memory: float) -> None:
    """Let a round count in the standing of each site that it judged, inside the transaction that commits it."""
    db.executemany(
        "UPDATE members SET rejection_rate = ? * rejection_rate + ?, rounds_judged = rounds_judged + 1 "
        "WHERE role = 'site' AND name = ?",
        [(memory, (1 - memory) * against, site) for site, against in rejected.items()],
    )
