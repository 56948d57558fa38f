"""A session of shares between real sites and one honest server; tests reach in between the phases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from foedus.aggregators.krum import MultiKrum
from foedus.privacy.secagg import sharing_updates
from foedus.privacy.secagg.codes import Refusal
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.holders import Reserves, widest_packing
from foedus.privacy.secagg.masking import plain_words
from foedus.privacy.secagg.opening import SecureSum
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.sharing_collect import Choice, SharingCollection
from foedus.privacy.secagg.sharing_opening import add_up_shares
from foedus.privacy.secagg.sharing_updates import share_update
from foedus.privacy.secagg.signing import Signed, sign
from foedus.privacy.secagg.state import Stage
from foedus.privacy.secagg.stored import stored
from foedus.privacy.sharing.field import Integers
from secure_sums import Federation, Site, local, session
from sketched_sums import SECRET, benign, choosing

POLICY = SumPolicy(modes=frozenset({Mode.SHARES}))
UNEQUAL = replace(POLICY, unequal_weights=True)  # for rules that weigh one update more than another

# The messages before which a site may vanish, in the order of a session.
PHASES = (
    *(Phase.KEYS, Phase.DEALS, Phase.AGREEMENTS, Phase.CONFIRMATIONS),
    *(Phase.PRODUCTS, Phase.ACKS, Phase.SUMS),
)


def shared(made: Federation, **changes: Any) -> SessionDescriptor:
    """A session of everybody, with the usual reserves, and all attackers and blocks that they leave room for."""
    n = len(made.keys)
    reserves = Reserves(-(-n // 5), -(-n // 20), max(changes.get("byzantine", 0), n // 10))
    fields: dict[str, Any] = {
        "mode": Mode.SHARES,
        "rule": "multi-krum",
        "packing": widest_packing(n, reserves),
        "privacy_threshold": reserves.privacy_threshold,
        "wrong_holders": reserves.wrong_holders,
        "dropouts": reserves.dropouts,
        "byzantine": reserves.wrong_holders,
        "strict": True,
        "num_coordinates": 31,
        "clip_norm": 40.0,
        "scale": 4096.0,
    }
    return session(made, **(fields | changes))


@dataclass
class ShareServer:
    """An honest server with its sites."""

    described: SessionDescriptor
    sites: dict[bytes, Site]
    collection: SharingCollection
    updates: dict[bytes, npt.NDArray[np.float32]]
    plain: dict[bytes, Integers] = field(default_factory=dict)
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

    def deal(self, absent: Collection[bytes] = ()) -> None:
        """Whoever knows the members shares its update."""
        for site in self.sites.values():
            if site.id not in absent and site.stored is not None and site.state.stage is Stage.SETTLED:
                words_D = plain_words(self.described, self.updates[site.id], site.state.rounding)
                self.plain[site.id] = words_D.view("<i4").astype(np.int64)
                self.take(deal(site, self.updates[site.id]))

    def deal_integers(self, site: Site, integers_D: Integers) -> None:
        """An attacker shares whatever it likes."""
        self.plain[site.id] = integers_D
        with patch.object(sharing_updates, "plain_words", lambda *_: _Words(integers_D)):
            self.take(deal(site, self.updates[site.id]))

    def to(self, phase: Phase, leaves: Mapping[bytes, Phase] | None = None) -> None:
        """On to a phase, its messages sent; ``leaves`` names the phase from whose message on a site is gone."""
        leaves = leaves or {}

        def gone(at: Phase) -> set[bytes]:
            return {site for site, last in leaves.items() if PHASES.index(last) <= PHASES.index(at)}

        steps = {
            Phase.KEYS: lambda: self.offer(gone(Phase.KEYS)),
            Phase.DEALS: lambda: (self.send(gone(Phase.KEYS)), self.deal(gone(Phase.DEALS))),
        }
        started = bool(self.collection.masks.keys)
        first = PHASES.index(self.collection.phase) + 1 if started else 0
        for at in PHASES[first : PHASES.index(phase) + 1]:
            steps.get(at, lambda at=at: self.send(gone(at)))()

    def run(self, leaves: Mapping[bytes, Phase] | None = None) -> None:
        """A whole session."""
        self.to(Phase.SUMS, leaves)

    def gram(self, sites: Collection[bytes]) -> npt.NDArray[np.int64]:
        """The plain inner products."""
        rows_ND = np.array([self.plain[site] for site in sites])
        return np.asarray(rows_ND @ rows_ND.T)

    def require_exact(self) -> SecureSum:
        """The sum is the weighted one of the sites' whole numbers, bit for bit."""
        found, weights = add_up_shares(self.collection), self.collection.weights
        expected_D = sum(weight * self.plain[site].astype(object) for site, weight in weights.items())
        assert np.array_equal(found.sum_D.astype(object), expected_D)
        assert found.survivors == tuple(sorted(weights))
        assert found.total_weight == sum(weights.values())
        return found


@dataclass
class _Words:
    """Integers that stand in the place of an update's words, though none such would fit into words."""

    integers_D: Integers

    def view(self, _dtype: object) -> Integers:
        return self.integers_D


def deal(site: Site, update_D: npt.NDArray[np.float32]) -> bytes | None:
    """A site's Deal message; its Masked message names that very one."""
    step = share_update(site.state, update_D, site.member)
    site.stored, site.refusal = stored(step.state), step.refusal
    if step.reply is None or step.words is None:
        return None
    sent = step.words.tobytes()
    assert Signed.from_bytes(step.reply).body == hashlib.sha256(sent).digest()
    site.sent.append(sent)
    return sent


def share_server(
    made: Federation,
    described: SessionDescriptor,
    *,
    choose: Choice | None = None,
    policy: SumPolicy = POLICY,
    sites: list[Site] | None = None,
    updates: dict[bytes, npt.NDArray[np.float32]] | None = None,
) -> ShareServer:
    f = described.byzantine
    collection = SharingCollection(described, made.roster, SECRET, choose or choosing(MultiKrum(f), f))
    people = {site.id: site for site in (sites or made.sites(policy))}
    return ShareServer(described, people, collection, updates or benign(described))


def next_session(described: SessionDescriptor, **changes: Any) -> SessionDescriptor:
    """The next attempt at the same round."""
    return replace(described, attempt=described.attempt + 1, **changes)
