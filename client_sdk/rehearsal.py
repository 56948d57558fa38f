"""A secure sum played through on this machine, with sites that are not there, to see what this one would say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import PolicyRefused
from ..plan import Plan
from ..privacy.secagg.codes import Refusal
from ..privacy.secagg.collect import SumCollection
from ..privacy.secagg.descriptor import Mode, SessionDescriptor
from ..privacy.secagg.joining import join
from ..privacy.secagg.masking import mask
from ..privacy.secagg.member import Local, Member
from ..privacy.secagg.policy import SumPolicy
from ..privacy.secagg.prg import Ring, Suite, Words
from ..privacy.secagg.quantise import finest_scale, smallest_ring
from ..privacy.secagg.roster import Roster, signed_roster
from ..privacy.secagg.signing import Signed
from ..privacy.secagg.site import receive
from ..privacy.secagg.state import SiteState, Step
from ..privacy.secagg.thresholds import share_threshold

FEDERATION = "preview"
HOLDS = {
    "keys": "two public keys of this session, and a commitment to this site's own mask",
    "shares": "shares of this site's two secrets, sealed for each other site; the server cannot read them",
    "masked": "the digest of the masked words; they travel beside it",
    "ack": "the digest of who is in the sum, so that no two sums can be opened",
    "unmask": "shares of the masks of the others: of each, what takes its mask off the sum of all, and nothing else",
}


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """What left this site.

    Attributes:
        words: the masked update.
        messages: each message with its name, bytes and what it holds.
    """

    words: Words
    messages: tuple[dict[str, Any], ...]


def rehearse(update_D: npt.NDArray[np.float32], weight: int | None, plan: Plan, policy: SumPolicy) -> Rehearsal:
    """Take part in a masked sum with as many sites as the policy and the plan ask for, all with keys made for this.

    Raises:
        PolicyRefused: the policy does not allow it.
        InvalidUpdate: the update cannot be used.
    """
    num_sites = max(policy.min_sites, policy.min_survivors, plan.secure.min_sites)

    def describe(roster: Roster) -> SessionDescriptor:
        return _descriptor(len(update_D), weight is not None, plan, policy, roster)

    return play(update_D, weight, policy, num_sites, describe)


def play(
    update_D: npt.NDArray[np.float32] | npt.NDArray[np.int64],
    weight: int | None,
    policy: SumPolicy,
    num_sites: int,
    describe: Callable[[Roster], SessionDescriptor],
) -> Rehearsal:
    """Take part in a sum with so many sites, the others of which send nothing.

    Args:
        update_D: this site's update, or its counters.
        weight: in the sum; None where it is not weighted.
        policy: of every site.
        num_sites: this one included.
        describe: the session among the sites of a roster.

    Raises:
        PolicyRefused, InvalidUpdate: as ``rehearse``.
    """
    operator, keys = Ed25519PrivateKey.generate(), [Ed25519PrivateKey.generate() for _ in range(num_sites)]
    roster = signed_roster(operator, FEDERATION, 1, tuple(key.public_key().public_bytes_raw() for key in keys))
    people = [Member(key, FEDERATION, operator.public_key().public_bytes_raw(), policy) for key in keys]
    members = {member.site: member for member in people}
    descriptor = describe(roster)
    collection, me = SumCollection(descriptor, roster), people[0].site
    local = Local(
        num_coordinates=len(update_D),
        layout_digest=descriptor.layout_digest,
        model_digest=descriptor.model_digest,
        config_digest=descriptor.config_digest,
    )
    states, said = dict[bytes, SiteState](), list[bytes]()

    def take(site: bytes, step: Step | Refusal) -> None:
        if isinstance(step, Refusal) or step.refusal is not None:
            refusal = step if isinstance(step, Refusal) else step.refusal
            raise PolicyRefused(f"this site's policy forbids the sum: {refusal.reason if refusal else ''}")
        states[site] = step.state
        if step.reply is None:
            return
        digest = hashlib.sha256(step.words.data).digest() if step.words is not None else None
        collection.receive(
            step.reply, words_digest=digest, num_bytes=step.words.nbytes if step.words is not None else 0
        )
        if site == me:
            said.append(step.reply)

    def send() -> None:
        for site, message in collection.close().items():
            take(site, receive(states[site], message, members[site]))

    for site, member in members.items():
        take(site, join(collection.offer(), member, local))
    send()
    send()
    nothing_D = np.zeros_like(update_D)
    mine = mask(states[me], update_D, members[me], weight=weight)
    take(me, mine)
    for site in members.keys() - {me}:
        take(site, mask(states[site], nothing_D, members[site], weight=weight and 1))
    send()
    send()
    assert mine.words is not None  # noqa: S101  (a mask that was not refused has words)
    return Rehearsal(mine.words, tuple(map(_shown, said)))


def _shown(message: bytes) -> dict[str, Any]:
    kind = Signed.from_bytes(message).kind.label
    return {"message": kind, "holds": HOLDS[kind], "num_bytes": len(message), "hex": message.hex()}


def _descriptor(
    num_coordinates: int, weighted: bool, plan: Plan, policy: SumPolicy, roster: Roster
) -> SessionDescriptor:
    participants = tuple(sorted(roster.by_id))
    num_sites, digest = len(participants), hashlib.sha256(plan.model_dump_json().encode()).digest()
    colluders = max(policy.colluders(num_sites), plan.secure.colluders or 0)
    scale = plan.secure.scale or finest_scale(num_sites, plan.secure.clip_norm, weighted=weighted)
    return SessionDescriptor(
        suite=Suite.AES_256_CTR,
        federation=roster.federation,
        run="preview",
        round=1,
        attempt=1,
        mode=Mode.MASKS,
        roster_digest=roster.digest,
        participants=participants,
        num_coordinates=num_coordinates,
        layout_digest=digest,
        model_digest=digest,
        config_digest=digest,
        ring=smallest_ring(num_sites, scale, plan.secure.clip_norm, weighted=weighted) or Ring.W64,
        clip_norm=plan.secure.clip_norm,
        scale=scale,
        weighted=weighted,
        degree=0,
        threshold=share_threshold(num_sites, colluders, 0),
        dropouts=0,
        colluders=colluders,
        rule=plan.aggregator.name,
        min_sites=num_sites,
        min_survivors=num_sites,
        deadlines_seconds=(60,) * 5,
    )
