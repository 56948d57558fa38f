"""Sessions over groups with an honest server, on real message bytes; tests modify one party."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from foedus.privacy.secagg.codes import Refusal
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.collect_groups import GroupCollection
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.grouping import group_sizes, group_threshold
from foedus.privacy.secagg.member import Local
from foedus.privacy.secagg.opening import SecureSum
from foedus.privacy.secagg.opening_groups import add_up_groups, open_groups
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Words
from foedus.privacy.secagg.quantise import quantise
from secure_sums import Federation, Site, local, session, updates


def policy(**changes: Any) -> SumPolicy:
    """Groups are allowed, and a small share of the sites is thought to collude."""
    wanted: dict[str, Any] = {"modes": frozenset({Mode.GROUPS}), "colluding_percent_in_groups": 4}
    return SumPolicy(**(wanted | changes))


def relaxed(**changes: Any) -> SumPolicy:
    """Nobody colludes, and two sites are enough."""
    wanted = {"min_sites": 2, "min_survivors": 2, "min_honest": 2, "colluding_percent_in_groups": 0}
    return policy(**(wanted | changes))


def grouped(made: Federation, group_size: int, **changes: Any) -> SessionDescriptor:
    """A session over groups, of the median; one in twenty-five colludes."""
    n = changes.pop("num_sites", len(made.keys))
    c = changes.get("colluders", -(-n // 25))
    fields: dict[str, Any] = {
        "num_sites": n,
        "mode": Mode.GROUPS,
        "colluders": c,
        "threshold": group_threshold(n, c, changes.get("degree", 0), group_size),
        "rule": "median",
        "min_sites": 5,
        "min_survivors": 5,
        "group_size": group_size,
    }
    return session(made, **(fields | changes))


def loose(made: Federation, group_size: int, **changes: Any) -> SessionDescriptor:
    """What ``relaxed`` allows: half of a group is enough."""
    half = (group_sizes(len(made.keys), group_size)[0] + 1) // 2
    wanted = {"colluders": 0, "min_sites": 2, "min_survivors": max(2, half), "num_coordinates": 7}
    return grouped(made, group_size, **(wanted | changes))


@dataclass
class Groups:
    """An honest server with its sites; a test may reach in between the phases."""

    described: SessionDescriptor
    sites: dict[bytes, Site]
    collection: GroupCollection
    updates: Mapping[bytes, npt.NDArray[np.float32]]
    rows: dict[bytes, Words] = field(default_factory=dict)
    plain: dict[bytes, Words] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    outbox: Mapping[bytes, bytes] = field(default_factory=dict)

    def group(self, site: bytes) -> SumCollection:
        """The collection of the group that a site is in."""
        return next(group for group in self.collection.groups if site in group.descriptor.participants)

    def members(self, place: int) -> tuple[bytes, ...]:
        return self.collection.groups[place].descriptor.participants

    def take(self, reply: bytes | None) -> None:
        if reply is not None and (refusal := self.collection.receive(reply)):
            self.refusals.append(refusal)

    def offer(self, absent: Collection[bytes] = (), known: Local | None = None) -> None:
        for site in self.sites.values():
            if site.id not in absent:
                self.take(site.join(self.collection.offer(), known or local(self.described)))

    def send(self, absent: Collection[bytes] = ()) -> None:
        self.outbox = self.collection.close()
        for site, message in self.outbox.items():
            if site not in absent:
                self.take(self.sites[site].receive(message))

    def mask(self, absent: Collection[bytes] = ()) -> None:
        for group in self.collection.left.values():
            for site in group.shares:
                if site not in absent:
                    self.upload(self.sites[site])

    def upload(self, site: Site) -> None:
        described, rounding = self.described, site.state.rounding
        reply = site.mask(self.updates[site.id])
        if reply is None:
            return
        assert site.words is not None
        digest = hashlib.sha256(site.words.data).digest()
        if refusal := self.collection.receive(reply, words_digest=digest, num_bytes=site.words.nbytes):
            self.refusals.append(refusal)
            return
        self.rows[site.id] = site.words
        self.plain[site.id] = quantise(
            self.updates[site.id],
            scale=described.scale,
            clip_norm=described.clip_norm,
            ring=described.ring,
            seed=rounding,
        )

    def run(self, leaves: Mapping[bytes, Phase] | None = None, until: Phase = Phase.UNMASK) -> None:
        """A session up to a phase; ``leaves`` names the phase whose message a site no longer sends."""

        def gone(phase: Phase) -> set[bytes]:
            return {site for site, last in (leaves or {}).items() if last <= phase}

        self.offer(gone(Phase.KEYS))
        if until >= Phase.SHARES:
            self.send(gone(Phase.SHARES))
        if until >= Phase.MASKED:
            self.send(gone(Phase.SHARES))
        if until >= Phase.ACKS:
            self.mask(gone(Phase.MASKED))
            self.send(gone(Phase.ACKS))
        if until >= Phase.UNMASK:
            self.send(gone(Phase.UNMASK))

    def result(self) -> dict[int, SecureSum]:
        return dict(add_up_groups(self.collection, open_groups(self.collection), lambda site: self.rows[site]))

    def require_exact(self) -> dict[int, SecureSum]:
        """Each sum is the plain sum of what the group's survivors quantised, in Python's integers."""
        found = self.result()
        for place, one in found.items():
            survivors = tuple(sorted(self.collection.groups[place].masked))
            rows = [self.plain[site].view(self.described.ring.signed).astype(object) for site in survivors]
            assert one.survivors == survivors
            assert set(survivors) <= set(self.members(place))
            assert one.total_weight == len(survivors)
            assert np.array_equal(one.sum_D.astype(np.int64), np.array(sum(rows), dtype=np.int64))
        return found


def groups(
    made: Federation,
    described: SessionDescriptor,
    *,
    allowed: SumPolicy | None = None,
    sites: Collection[Site] | None = None,
    seed: int = 0,
) -> Groups:
    people = sites if sites is not None else made.sites(allowed or policy())
    collection = GroupCollection(described, made.roster)
    return Groups(described, {site.id: site for site in people}, collection, updates(described, seed))
