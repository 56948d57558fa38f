"""A secure sum between sites and a server in one process, step by step, so that each step can be measured.

Shape suffixes: D coordinates.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.joining import join
from foedus.privacy.secagg.masking import mask
from foedus.privacy.secagg.member import Local, Member
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring, Suite, Words
from foedus.privacy.secagg.roster import Roster, signed_roster
from foedus.privacy.secagg.signing import Signed, site_id
from foedus.privacy.secagg.site import receive
from foedus.privacy.secagg.state import SiteState, Step
from foedus.privacy.secagg.thresholds import share_threshold

FEDERATION = "bench"
DIGEST = hashlib.sha256(b"the same work for all").digest()
COLLUDING_PERCENT = 20


@dataclass(frozen=True)
class Group:
    """Who takes part, and in what."""

    members: tuple[Member, ...]
    roster: Roster
    descriptor: SessionDescriptor

    @property
    def known(self) -> Local:
        """What every site knows of the work by itself."""
        return Local(
            num_coordinates=self.descriptor.num_coordinates,
            layout_digest=DIGEST,
            model_digest=DIGEST,
            config_digest=DIGEST,
        )


@dataclass
class Session:
    """One session as it went.

    Attributes:
        before: the first site's state and what it is sent, by what it answers.
        taken: what the server received, in order, with the digest of the words beside it; None where a phase ended.
        rows: the masked words of each site.
        collection: the server's, at the end.
    """

    group: Group
    collection: SumCollection
    before: dict[Phase, tuple[SiteState, bytes]] = field(default_factory=dict)
    taken: list[tuple[bytes, bytes | None] | None] = field(default_factory=list)
    rows: dict[bytes, Words] = field(default_factory=dict)


def group(n: int, d: int) -> Group:
    """Sites with fresh keys, a fifth of which may collude, and the session of them all."""
    operator = Ed25519PrivateKey.generate()
    keys = sorted((Ed25519PrivateKey.generate() for _ in range(n)), key=lambda key: site_id(_public(key)))
    roster = signed_roster(operator, FEDERATION, 1, tuple(map(_public, keys)))
    colluders = -(-n * COLLUDING_PERCENT // 100)
    descriptor = SessionDescriptor(
        suite=Suite.AES_256_CTR,
        federation=FEDERATION,
        run="bench",
        round=1,
        attempt=1,
        mode=Mode.MASKS,
        roster_digest=roster.digest,
        participants=tuple(site_id(_public(key)) for key in keys),
        num_coordinates=d,
        layout_digest=DIGEST,
        model_digest=DIGEST,
        config_digest=DIGEST,
        ring=Ring.W32,
        clip_norm=8.0,
        scale=1024.0,
        weighted=False,
        degree=0,
        threshold=share_threshold(n, colluders, 0),
        dropouts=0,
        colluders=colluders,
        rule="mean",
        min_sites=max(5, colluders + 3),
        min_survivors=max(5, colluders + 3, -(-n // 2)),
        deadlines_seconds=(60,) * 5,
    )
    policy = SumPolicy(colluding_percent=COLLUDING_PERCENT)
    return Group(tuple(Member(key, FEDERATION, _public(operator), policy) for key in keys), roster, descriptor)


def session(of: Group, update_D: npt.NDArray[np.float32], gone: int = 0) -> Session:
    """A whole session in which every site sends the same update, but the last ``gone``, which deal shares and leave."""
    collection = SumCollection(of.descriptor, of.roster)
    made, states = Session(of, collection), {}
    leave = {member.site for member in of.members[len(of.members) - gone :]}
    members = {member.site: member for member in of.members}
    for site, member in members.items():
        step = join(collection.offer(), member, of.known)
        assert isinstance(step, Step), step
        _take(made, states, site, step)
    for phase in (Phase.SHARES, Phase.MASKED, Phase.ACKS, Phase.UNMASK):
        made.taken.append(None)
        for site, message in collection.close().items():
            first = site == of.members[0].site
            if first:
                made.before[phase] = states[site], message
            step = receive(states[site], message, members[site])
            _take(made, states, site, step)
            if phase is Phase.MASKED and site not in leave:
                step = mask(states[site], update_D, members[site])
                assert step.words is not None
                made.rows[site] = step.words
                _take(made, states, site, step)
    return made


def masked_state(of: Session) -> SiteState:
    """The first site's state when it may mask."""
    state, delivery = of.before[Phase.MASKED]
    return receive(state, delivery, of.group.members[0]).state


def collected(of: Session) -> Mapping[Phase, float]:
    """CPU seconds of the server for all messages of a phase and for ending it, as the session went."""
    collection, seconds, begun = SumCollection(of.group.descriptor, of.group.roster), {}, time.process_time()
    num_bytes = of.group.descriptor.num_words * of.group.descriptor.ring.word_bytes
    for item in [*of.taken, None]:
        phase = collection.phase
        if item is not None:
            refusal = collection.receive(item[0], words_digest=item[1], num_bytes=num_bytes)
            assert refusal is None, refusal
            continue
        if phase is not Phase.UNMASK:
            collection.close()
        now = time.process_time()
        seconds[phase], begun = now - begun, now
    return seconds


def bytes_up(of: Session) -> int:
    """What the first site has sent."""
    site = of.group.members[0].site
    messages = [item[0] for item in of.taken if item is not None]
    return sum(len(message) for message in messages if Signed.from_bytes(message).sender == site) + of.rows[site].nbytes


def _take(of: Session, states: dict[bytes, SiteState], site: bytes, step: Step) -> None:
    assert step.refusal is None, step.refusal
    states[site] = step.state
    if step.reply is None:
        return
    words = step.words
    digest = None if words is None else hashlib.sha256(words.data).digest()
    refusal = of.collection.receive(step.reply, words_digest=digest, num_bytes=0 if words is None else words.nbytes)
    assert refusal is None, refusal
    of.taken.append((step.reply, digest))


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
