"""A federation of in-memory sites and one honest server that pass real message bytes; tests modify one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.privacy.secagg.codes import Refusal
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.joining import join
from foedus.privacy.secagg.masking import mask, plain_words
from foedus.privacy.secagg.member import Local, Member
from foedus.privacy.secagg.opening import SecureSum, add_up, open_sum
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring, Suite, Words
from foedus.privacy.secagg.roster import Roster, signed_roster
from foedus.privacy.secagg.signing import site_id
from foedus.privacy.secagg.site import receive
from foedus.privacy.secagg.state import SiteState, Step
from foedus.privacy.secagg.stored import restored, stored
from foedus.privacy.secagg.thresholds import share_threshold

LAYOUT, MODEL, CONFIG = (hashlib.sha256(word).digest() for word in (b"layout", b"model", b"config"))
FEDERATION = "hearts"

# The stages before which a site may vanish, in order.
STAGES = (Phase.KEYS, Phase.SHARES, Phase.MASKED, Phase.ACKS, Phase.UNMASK)


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


@dataclass(frozen=True)
class Federation:
    """An operator, a roster, and the sites' identities in the order of their ids."""

    operator: Ed25519PrivateKey
    keys: tuple[Ed25519PrivateKey, ...]
    roster: Roster

    @property
    def ids(self) -> tuple[bytes, ...]:
        return tuple(site_id(public(key)) for key in self.keys)

    def sites(self, policy: SumPolicy) -> list[Site]:
        return [Site(Member(key, FEDERATION, public(self.operator), policy)) for key in self.keys]


def federation(num_sites: int, seed: int = 0) -> Federation:
    def key(*parts: int) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(repr((seed, *parts)).encode()).digest())

    keys = sorted((key(1, number) for number in range(num_sites)), key=lambda one: site_id(public(one)))
    operator = key(0)
    roster = signed_roster(operator, FEDERATION, 1, tuple(public(one) for one in keys))
    return Federation(operator, tuple(keys), roster)


def session(made: Federation, **changes: Any) -> SessionDescriptor:
    """A session of everybody with a fifth colluding, as the default policy wants it."""
    n = changes.pop("num_sites", len(made.keys))
    c = changes.get("colluders", -(-n // 5))
    floor = c + 3
    fields: dict[str, Any] = {
        "suite": Suite.AES_256_CTR,
        "federation": FEDERATION,
        "run": "spring",
        "round": 3,
        "attempt": 1,
        "mode": Mode.MASKS,
        "roster_digest": made.roster.digest,
        "participants": made.ids[:n],
        "num_coordinates": 40,
        "layout_digest": LAYOUT,
        "model_digest": MODEL,
        "config_digest": CONFIG,
        "ring": Ring.W32,
        "clip_norm": 8.0,
        "scale": 1024.0,
        "weighted": False,
        "degree": 0,
        "threshold": share_threshold(n, c, changes.get("degree", 0)),
        "dropouts": 0,
        "colluders": c,
        "rule": "mean",
        "min_sites": max(5, floor),
        "min_survivors": max(5, floor, -(-n // 2)),
        "deadlines_seconds": (60, 60, 600, 60, 60),
    }
    return SessionDescriptor(**(fields | changes))


def local(described: SessionDescriptor, **changes: Any) -> Local:
    known = Local(
        num_coordinates=described.num_coordinates, layout_digest=LAYOUT, model_digest=MODEL, config_digest=CONFIG
    )
    return replace(known, **changes)


@dataclass
class Site:
    """A site that keeps nothing in memory: its state goes through its stored bytes at every step."""

    member: Member
    stored: Any = None
    refusal: Refusal | None = None
    sent: list[bytes] = field(default_factory=list)
    words: Words | None = None

    @property
    def id(self) -> bytes:
        return self.member.site

    @property
    def state(self) -> SiteState:
        return restored(self.stored)

    def _keep(self, step: Step) -> bytes | None:
        self.stored = stored(step.state)
        self.refusal = step.refusal
        if step.reply is not None:
            self.sent.append(step.reply)
        return step.reply

    def join(self, message: bytes, known: Local) -> bytes | None:
        found = join(message, self.member, known, self.state if self.stored else None)
        if isinstance(found, Refusal):
            self.refusal = found
            return None
        return self._keep(found)

    def receive(self, message: bytes) -> bytes | None:
        return self._keep(receive(self.state, message, self.member))

    def mask(self, update_D: npt.NDArray[np.float32], weight: int | None = None) -> bytes | None:
        step = mask(self.state, update_D, self.member, weight=weight)
        self.words = step.words
        return self._keep(step)


def updates(described: SessionDescriptor, seed: int = 0) -> dict[bytes, npt.NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return {site: random.normal(size=described.num_coordinates).astype(np.float32) for site in described.participants}


@dataclass
class Server:
    """An honest server with its sites; a test may reach in between the phases."""

    described: SessionDescriptor
    sites: dict[bytes, Site]
    collection: SumCollection
    updates: Mapping[bytes, npt.NDArray[np.float32]]
    weights: Mapping[bytes, int] | None = None
    rows: dict[bytes, Words] = field(default_factory=dict)
    plain: dict[bytes, Words] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    received: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    outbox: Mapping[bytes, bytes] = field(default_factory=dict)

    def take(self, reply: bytes | None) -> None:
        if reply is not None and (refusal := self.collection.receive(reply)):
            self.refusals.append(refusal)

    def offer(self, absent: Collection[bytes] = (), known: Local | None = None) -> None:
        for site in self.sites.values():
            if site.id not in absent and site.id in self.described.participants:
                self.take(site.join(self.collection.offer(), known or local(self.described)))

    def send(self, absent: Collection[bytes] = ()) -> None:
        """Close the phase and pass the messages on to whoever is not absent."""
        self.outbox = self.collection.close()
        for site, message in self.outbox.items():
            if site not in absent:
                self.take(self.sites[site].receive(message))

    def mask(self, absent: Collection[bytes] = ()) -> None:
        for site in self.collection.shares:
            if site not in absent:
                self.upload(self.sites[site])

    def upload(self, site: Site) -> None:
        weight = self.weights[site.id] if self.weights else None
        rounding = site.state.rounding
        reply = site.mask(self.updates[site.id], weight)
        if reply is None:
            return
        assert site.words is not None
        digest = hashlib.sha256(site.words.data).digest()
        refusal = self.collection.receive(reply, words_digest=digest, num_bytes=site.words.nbytes)
        if refusal is not None:
            self.refusals.append(refusal)
            return
        self.rows[site.id] = site.words
        self.plain[site.id] = plain_words(self.described, self.updates[site.id], rounding, weight)

    def run(self, leaves: Mapping[bytes, Phase] | None = None) -> None:
        """A whole session; ``leaves`` names the phase whose message a site no longer sends."""
        leaves = leaves or {}

        def gone(phase: Phase) -> set[bytes]:
            return {site for site, last in leaves.items() if last <= phase}

        self.offer(gone(Phase.KEYS))
        self.send(gone(Phase.SHARES))
        self.send(gone(Phase.SHARES))
        self.mask(gone(Phase.MASKED))
        self.send(gone(Phase.ACKS))
        self.send(gone(Phase.UNMASK))

    def result(self) -> SecureSum:
        opening = open_sum(self.collection)
        return add_up(self.described, opening, ((site, self.rows[site]) for site in self.collection.masked))

    def expected(self) -> npt.NDArray[np.signedinteger[Any]]:
        """The plain sum of what the survivors quantised, in Python's integers."""
        rows = [self.plain[site].view(self.described.ring.signed).astype(object) for site in self.collection.masked]
        return np.array(sum(rows), dtype=np.int64)

    def require_exact(self) -> SecureSum:
        found, expected = self.result(), self.expected()
        d = self.described.num_coordinates
        assert np.array_equal(found.sum_D.astype(np.int64), expected[:d])
        assert found.survivors == tuple(sorted(self.collection.masked))
        if self.weights:
            assert found.total_weight == expected[d] == sum(self.weights[site] for site in found.survivors)
        else:
            assert found.total_weight == len(found.survivors)
        return found


def server(
    made: Federation,
    described: SessionDescriptor,
    *,
    policy: SumPolicy | None = None,
    sites: Sequence[Site] | None = None,
    weights: Mapping[bytes, int] | None = None,
    seed: int = 0,
) -> Server:
    people = sites if sites is not None else made.sites(policy or SumPolicy())
    collection = SumCollection(described, made.roster)
    return Server(described, {site.id: site for site in people}, collection, updates(described, seed), weights)


def relaxed(n: int) -> SumPolicy:
    """What two or three sites need to sum at all: nobody colludes."""
    return SumPolicy(min_sites=2, min_survivors=2, min_honest=2, colluding_percent=0)
