"""A session of sketches between real sites and one honest server; tests reach in between the phases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from by_definition import uniform
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.krum import MultiKrum
from foedus.aggregators.protocols import DistanceRule
from foedus.privacy.secagg import masking, sketching
from foedus.privacy.secagg.codes import Refusal
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.holders import usual_reserves
from foedus.privacy.secagg.judging import Judged
from foedus.privacy.secagg.masking import plain_words
from foedus.privacy.secagg.opening import SecureSum
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Words
from foedus.privacy.secagg.sharing_collect import Choice, SharingCollection
from foedus.privacy.secagg.sharing_opening import add_up_selected, open_selected
from foedus.privacy.secagg.signing import Signed, sign
from foedus.privacy.secagg.sketching import share_sketch
from foedus.privacy.secagg.state import Stage
from foedus.privacy.secagg.stored import stored
from foedus.privacy.secrets import Secret
from secure_sums import Federation, Site, local, session

SECRET = Secret(b"server's randomness, 32 bytes of.")
POLICY = SumPolicy(modes=frozenset({Mode.SKETCH}))

# The messages before which a site may vanish, in the order of a session.
PHASES = (
    *(Phase.KEYS, Phase.SHARES, Phase.MASKED, Phase.DEALS),
    *(Phase.AGREEMENTS, Phase.PRODUCTS, Phase.ACKS, Phase.SUMS),
)

PROVED_PHASES = (*PHASES[:5], Phase.CONFIRMATIONS, *PHASES[5:])


def sketched(made: Federation, **changes: Any) -> SessionDescriptor:
    """A session of everybody, with the usual reserves and as many attackers as may lie."""
    reserves = usual_reserves(len(made.keys))
    fields: dict[str, Any] = {
        "mode": Mode.SKETCH,
        "rule": "multi-krum",
        "packing": 1,
        "privacy_threshold": reserves.privacy_threshold,
        "wrong_holders": reserves.wrong_holders,
        "dropouts": reserves.dropouts,
        "byzantine": min(reserves.wrong_holders, (len(made.keys) - 3) // 2),
        "num_coordinates": 300,
        "clip_norm": 40.0,
        "scale": 4096.0,
    }
    return session(made, **(fields | changes))


def choosing(rule: DistanceRule, f: int) -> Choice:
    """What a rule selects; it expects as many fewer liars as are refused already."""

    def choose(judged: Judged) -> list[bytes]:
        able = replace(rule, f=max(0, f - len(judged.refused)))  # type: ignore[type-var]
        selected = able.judge(Geometry(judged.squared_PP), uniform(len(judged.sites))).selected
        return [judged.sites[place] for place in selected]

    return choose


def benign(described: SessionDescriptor, seed: int = 0) -> dict[bytes, npt.NDArray[np.float32]]:
    """Updates that agree in part, each with a spread of its own; of norms about 30."""
    random, n, d = np.random.default_rng(seed), described.num_sites, described.num_coordinates
    spread = random.permutation(np.linspace(0.4, 1.0, n))
    rows = 0.7 * random.normal(size=d) + spread[:, None] * random.normal(size=(n, d))
    return {
        site: (row * (30 / np.sqrt(d))).astype(np.float32)
        for site, row in zip(described.participants, rows, strict=True)
    }


def sketch(site: Site, update_D: npt.NDArray[np.float32]) -> bytes | None:
    step = share_sketch(site.state, update_D, site.member)
    site.stored, site.refusal = stored(step.state), step.refusal
    if step.reply is not None:
        site.sent.append(step.reply)
    return step.reply


@dataclass
class SketchServer:
    """An honest server with its sites."""

    described: SessionDescriptor
    sites: dict[bytes, Site]
    collection: SharingCollection
    updates: dict[bytes, npt.NDArray[np.float32]]
    rows: dict[bytes, Words] = field(default_factory=dict)
    plain: dict[bytes, Words] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    lied: dict[tuple[bytes, Phase], bytes] = field(default_factory=dict)
    outbox: Mapping[bytes, bytes] = field(default_factory=dict)

    def take(self, reply: bytes | None) -> None:
        if reply is not None and (refusal := self.collection.receive(reply)):
            self.refusals.append(refusal)

    def offer(self, absent: Collection[bytes] = ()) -> None:
        for site in self.sites.values():
            if site.id not in absent and site.id in self.described.participants:
                self.take(site.join(self.collection.offer(), local(self.described)))

    def send(self, absent: Collection[bytes] = ()) -> None:
        """Close the phase and pass the messages on to whoever is not absent."""
        self.outbox = self.collection.close()
        for site, message in self.outbox.items():
            if site not in absent:
                self.take(self.sites[site].receive(message))

    def send_changed(self, changes: Mapping[bytes, Callable[[bytes], bytes]]) -> None:
        """Close the phase and pass the messages on; some sites answer with another body than they should."""
        self.outbox = self.collection.close()
        for site, message in self.outbox.items():
            reply = self.sites[site].receive(message)
            if site in changes and reply is not None:
                honest = Signed.from_bytes(reply)
                body = changes[site](honest.body)
                reply = sign(self.sites[site].member.key, honest.kind, honest.sid, body).to_bytes()
                self.lied[site, Phase(honest.kind)] = reply
            self.take(reply)

    def mask(self, absent: Collection[bytes] = ()) -> None:
        for site in self.collection.masks.shares:
            if site not in absent:
                self.upload(self.sites[site])

    def upload(self, site: Site) -> None:
        rounding = site.state.rounding
        reply = site.mask(self.updates[site.id])
        assert reply is not None
        assert site.words is not None
        digest = hashlib.sha256(site.words.data).digest()
        refusal = self.collection.receive(reply, words_digest=digest, num_bytes=site.words.nbytes)
        assert refusal is None
        self.rows[site.id] = site.words
        self.plain[site.id] = plain_words(self.described, self.updates[site.id], rounding)

    def deal(self, absent: Collection[bytes] = ()) -> None:
        """Whoever knows the survivors shares its sketch."""
        for site in self.sites.values():
            if site.id not in absent and site.stored is not None and site.state.stage is Stage.SETTLED:
                self.take(sketch(site, self.updates[site.id]))

    def upload_words(self, site: Site, words_D: Words) -> None:
        """An attacker masks whatever it likes."""
        with patch.object(masking, "plain_words", lambda *_: words_D.copy()):
            self.upload(site)
        self.plain[site.id] = words_D

    def deal_words(self, site: Site, words_D: Words) -> None:
        """An attacker shares the sketch of whatever it likes."""
        sharing = replace(site.state.sharing, update_digest=masking.update_digest(words_D))
        site.stored = stored(replace(site.state, sharing=sharing))
        with patch.object(sketching, "plain_words", lambda *_: words_D.copy()):
            self.take(sketch(site, self.updates[site.id]))

    def attack(self, masked: Mapping[bytes, Words], shared: Mapping[bytes, Words] | None = None) -> None:
        """Up to the deals, with attackers who mask these words, and share the sketch of those, or of the same."""
        self.to(Phase.SHARES)
        self.send()
        for site in self.sites.values():
            if site.id in masked:
                self.upload_words(site, masked[site.id])
            else:
                self.upload(site)
        self.send()
        for site in masked:
            self.deal_words(self.sites[site], (shared or masked)[site])
        self.deal()

    def to(self, phase: Phase, leaves: Mapping[bytes, Phase] | None = None) -> None:
        """On to a phase, its messages sent; ``leaves`` names the phase from whose message on a site is gone."""
        leaves = leaves or {}

        phases = PROVED_PHASES if self.described.strict else PHASES

        def gone(at: Phase) -> set[bytes]:
            return {site for site, last in leaves.items() if phases.index(last) <= phases.index(at)}

        steps = {
            Phase.KEYS: lambda: self.offer(gone(Phase.KEYS)),
            Phase.SHARES: lambda: self.send(gone(Phase.SHARES)),
            Phase.MASKED: lambda: (self.send(gone(Phase.SHARES)), self.mask(gone(Phase.MASKED))),
            Phase.DEALS: lambda: (self.send(gone(Phase.MASKED)), self.deal(gone(Phase.DEALS))),
        }
        started = bool(self.collection.masks.keys)
        first = phases.index(self.collection.phase) + 1 if started else 0
        for at in phases[first : phases.index(phase) + 1]:
            steps.get(at, lambda at=at: self.send(gone(at)))()

    def run(self, leaves: Mapping[bytes, Phase] | None = None) -> None:
        """A whole session."""
        self.to(Phase.SUMS, leaves)

    def result(self) -> SecureSum:
        collection = self.collection
        rows = ((site, self.rows[site]) for site in collection.selected)
        return add_up_selected(collection, open_selected(collection), rows)

    def require_exact(self) -> SecureSum:
        """The sum of the selected is that of their whole numbers, bit for bit."""
        found, selected = self.result(), self.collection.selected
        expected = sum(self.plain[site].view("<i4").astype(object) for site in selected)
        assert np.array_equal(found.sum_D.astype(object), expected)
        assert found.survivors == selected
        assert found.total_weight == len(selected)
        return found


def sketch_server(
    made: Federation,
    described: SessionDescriptor,
    *,
    choose: Choice | None = None,
    policy: SumPolicy = POLICY,
    sites: list[Site] | None = None,
    updates: dict[bytes, npt.NDArray[np.float32]] | None = None,
) -> SketchServer:
    f = described.byzantine
    collection = SharingCollection(described, made.roster, SECRET, choose or choosing(MultiKrum(f), f))
    people = {site.id: site for site in (sites or made.sites(policy))}
    return SketchServer(described, people, collection, updates or benign(described))
