"""A secure sum played through on this machine, with sites that are not there, to see what this one would say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import PolicyRefused
from ..plan import Plan
from ..privacy.secagg.codes import Refusal, abort
from ..privacy.secagg.collect import SumCollection, offered
from ..privacy.secagg.descriptor import Mode, SessionDescriptor
from ..privacy.secagg.groups import group_session
from ..privacy.secagg.joining import join
from ..privacy.secagg.keys import fresh_secret
from ..privacy.secagg.masking import mask
from ..privacy.secagg.member import Local, Member
from ..privacy.secagg.policy import SumPolicy
from ..privacy.secagg.prg import Words
from ..privacy.secagg.roster import Roster, signed_roster
from ..privacy.secagg.sharing_collect import SharingCollection
from ..privacy.secagg.sharing_messages import split_boxes
from ..privacy.secagg.sharing_updates import share_update
from ..privacy.secagg.site import receive
from ..privacy.secagg.sketching import share_sketch
from ..privacy.secagg.state import SiteState, Stage, Step
from ..privacy.secagg.terms import session_of
from .holds import message_holds

Update: TypeAlias = npt.NDArray[Any]  # float32, or int64 where whole numbers are summed

FEDERATION = "preview"
RUN = "preview"


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """What left this site.

    Attributes:
        session: in which; where sums are over groups, that of this site's group.
        words: the masked update, or the update in sealed shares (bytes).
        masked: the message that names the words.
        messages: each message with its name, bytes and what it holds.
    """

    session: SessionDescriptor
    words: Words
    masked: bytes
    messages: tuple[dict[str, Any], ...]


def rehearse(update_D: npt.NDArray[np.float32], weight: int | None, plan: Plan, policy: SumPolicy) -> Rehearsal:
    """Take part in a sum of as few sites as the plan begins with, all with keys made for this.

    The session is the one that a server would offer them.

    Raises:
        ConfigError: there can be no such session.
        PolicyRefused: the policy does not allow it.
        InvalidUpdate: the update cannot be used.
    """
    digest = hashlib.sha256(plan.model_dump_json().encode()).digest()

    def describe(roster: Roster) -> SessionDescriptor:
        return session_of(
            plan,
            quorum=plan.cohort.quorum or plan.cohort.sites_needed,
            run=RUN,
            round=1,
            attempt=1,
            roster=roster,
            participants=tuple(roster.by_id),
            num_coordinates=len(update_D),
            layout_digest=digest,
            model_digest=digest,
            config_digest=digest,
        )

    return play(update_D, weight, policy, plan.cohort.sites_needed, describe)


def play(
    update_D: Update,
    weight: int | None,
    policy: SumPolicy,
    num_sites: int,
    describe: Callable[[Roster], SessionDescriptor],
) -> Rehearsal:
    """Take part in a sum with so many sites; the others send zeros, and a rule that selects would select everybody.

    Args:
        update_D: this site's update, or its counters.
        weight: in the sum; None where it is not weighted.
        policy: of every site.
        num_sites: this one included.
        describe: the session among the sites of a roster.

    Raises:
        ConfigError, PolicyRefused, InvalidUpdate: as ``rehearse``.
    """
    operator, keys = Ed25519PrivateKey.generate(), [Ed25519PrivateKey.generate() for _ in range(num_sites)]
    roster = signed_roster(operator, FEDERATION, 1, tuple(key.public_key().public_bytes_raw() for key in keys))
    people = [Member(key, FEDERATION, operator.public_key().public_bytes_raw(), policy) for key in keys]
    whole, me = describe(roster), people[0].site
    session = group_session(whole, me) if whole.mode is Mode.GROUPS else whole
    members = {member.site: member for member in people if member.site in session.participants}
    cast = _Cast(_collection(session, roster), members, me)
    cast.join(offered(whole, roster), whole)
    while not cast.collection.revealing:
        cast.answer()
        cast.send_updates(update_D, weight)
    assert cast.words is not None  # noqa: S101  (a sum is not revealed before its updates have left)
    return Rehearsal(session, cast.words, cast.masked, tuple(_shown(message, session) for message in cast.said))


@dataclass(slots=True)
class _Cast:
    """All sites of a sum, with an honest server between them.

    Attributes:
        collection: the server's half.
        members: this site first.
        me: its id.
        said: every message that this site has sent.
        masked, words: the one that names what left beside it, and that.
    """

    collection: SumCollection | SharingCollection
    members: Mapping[bytes, Member]
    me: bytes
    said: list[bytes] = field(default_factory=list)
    masked: bytes = b""
    words: Words | None = None
    _states: dict[bytes, SiteState] = field(default_factory=dict)

    def join(self, offer: bytes, whole: SessionDescriptor) -> None:
        """Everybody answers the offer."""
        local = Local(
            num_coordinates=whole.num_coordinates,
            layout_digest=whole.layout_digest,
            model_digest=whole.model_digest,
            config_digest=whole.config_digest,
        )
        for site, member in self.members.items():
            self._take(site, join(offer, member, local))

    def answer(self) -> None:
        """Everybody answers what the server sends at the end of a phase."""
        for site, message in self.collection.close().items():
            self._take(site, receive(self._states[site], message, self.members[site]))

    def send_updates(self, update_D: Update, weight: int | None) -> None:
        """This site's update leaves, masked or in shares, or its sketch, if it is time; the others' are zero."""
        for site, member in self.members.items():
            mine = site == self.me
            step = _leaving(
                self._states[site],
                update_D if mine else np.zeros_like(update_D),
                member,
                weight if mine else weight and 1,
            )
            if step is not None:
                self._take(site, step)

    def _take(self, site: bytes, step: Step | Refusal) -> None:
        if isinstance(step, Refusal):
            raise _forbidden(step)
        if step.refusal is not None:
            raise _forbidden(step.refusal)
        self._states[site] = step.state
        if step.reply is None:
            return
        self._pass_on(step.reply, step.words)
        if site == self.me:
            self.said.append(step.reply)
            if step.words is not None:
                self.masked, self.words = step.reply, step.words

    def _pass_on(self, reply: bytes, words: Words | None) -> None:
        """To the server, as it takes it: of an update in shares these, of a masked one the message that names it."""
        if words is None:
            refusal = self.collection.receive(reply)
        elif self.collection.descriptor.mode is Mode.SHARES:
            refusal = self.collection.receive(words.tobytes())
        else:
            digest = hashlib.sha256(words.data).digest()
            refusal = self.collection.receive(reply, words_digest=digest, num_bytes=words.nbytes)
        if refusal is not None:
            raise abort(refusal.code, refusal.reason, refusal.blamed)


def _forbidden(refusal: Refusal) -> PolicyRefused:
    return PolicyRefused(f"{refusal.code}: {refusal.reason}")


def _collection(session: SessionDescriptor, roster: Roster) -> SumCollection | SharingCollection:
    if session.mode in (Mode.SKETCH, Mode.SHARES):
        return SharingCollection(session, roster, fresh_secret(), lambda judged: judged.sites)
    return SumCollection(session, roster)


def _leaving(state: SiteState, update_D: Update, member: Member, weight: int | None) -> Step | None:
    match state.descriptor.mode, state.stage:
        case Mode.SHARES, Stage.SETTLED:
            return share_update(state, update_D, member)
        case Mode.SKETCH, Stage.SETTLED:
            return share_sketch(state, update_D, member)
        case _, Stage.DELIVERED:
            return mask(state, update_D, member, weight=weight)
        case _:
            return None


def _shown(message: bytes, session: SessionDescriptor) -> dict[str, Any]:
    kind = split_boxes(message)[0].kind
    holds = message_holds(kind, session)
    return {"message": kind.label, "holds": holds, "num_bytes": len(message), "hex": message.hex()}
