"""What a site keeps of one session: a value to store before the answer that goes with it leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from ..secrets import Secret
from .codes import Refusal
from .descriptor import SessionDescriptor
from .member import Member
from .prg import Words
from .signing import Kind, Signed

ERASED = Secret(b"")


class Stage(IntEnum):
    """What a site has last done."""

    KEYS_SENT = 1
    SHARES_SENT = 2
    DELIVERED = 3
    MASKED = 4
    ACKED = 5
    REVEALED = 6
    ENDED = 7
    SETTLED = 8  # it is settled who deals; the sketch is to be made, or the update to be shared
    DEALT = 9
    AGREED = 10
    CONFIRMED = 11
    ANSWERED = 12


@dataclass(frozen=True, slots=True)
class Held:
    """The shares of one dealer that this site holds."""

    owner: bytes
    seed_share: Secret
    mask_share: Secret


@dataclass(frozen=True, slots=True)
class Exposure:
    """An attempt in which this site has sent its update, masked or shared: who took part, and how many open it.

    0 open it where this site has said that it may be opened, and must open nothing else.
    """

    members: tuple[bytes, ...]
    threshold: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered to a message, so that the same message gets the same bytes again."""

    request: bytes
    reply: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a site keeps of computing on shares.

    Attributes:
        update_digest: SHA-256 of its own update in whole numbers, so that no other one is shared.
        vector: its own sketch, or its update in whole numbers, as long as that is to be proved short.
        draw: seed of the shares of its update, from which they can be dealt again.
        deal: what it has dealt last, as sent; without the boxes where they can be made again.
        own, own_proof: its own box and proof.
        deals, proofs: everybody's, once they are agreed on.
        agreement: the digest of the deals agreed on.
        challenge: the digest of all that is agreed on: of the deals, or the proofs that came after them.
        shares: by dealer, its share of the dealer's vector; until it is known which are summed.
        selected: whose vectors are summed.
        summed: its share of their sum.
    """

    update_digest: Secret = field(default_factory=lambda: ERASED)
    vector: Secret = field(default_factory=lambda: ERASED)
    draw: Secret = field(default_factory=lambda: ERASED)
    deal: bytes = field(default=b"", repr=False)
    own: Secret = field(default_factory=lambda: ERASED)
    own_proof: Secret = field(default_factory=lambda: ERASED)
    deals: tuple[Signed, ...] = ()
    proofs: tuple[Signed, ...] = ()
    agreement: bytes = b""
    challenge: bytes = b""
    shares: tuple[tuple[bytes, Secret], ...] = ()
    selected: tuple[bytes, ...] = ()
    summed: Secret = field(default_factory=lambda: ERASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteState:
    """One session at one site.

    Attributes:
        stage: what was last done.
        descriptor: the session.
        site: this site's id.
        public_keys: the Ed25519 keys of the participants, in their order.
        roster_version: of the roster they come from.
        seal_key, mask_key: X25519 private keys. Secrets are empty once erased.
        seed: of this site's own mask.
        rounding: seed of the random rounding, and of the noise.
        keys: everybody's Keys messages (U1), once known.
        dealers: who has dealt shares (U2).
        held: the shares this site holds, its own among them, sorted by owner.
        masked_digest: SHA-256 of the masked words.
        masked: this site's Masked message.
        survivors: whose masked updates are in the sum (U3).
        view: the digest acknowledged: the one view of U1, U2 and U3 that this site gives shares for.
        answers: what was answered to which message.
        earlier: attempts at the same round in which the update was sent; this one among them if it was shared.
        sharing: what a session of sketches or shares needs beside.
        refusal: why the session has ended, if it has.
    """

    stage: Stage
    descriptor: SessionDescriptor
    site: bytes
    public_keys: tuple[bytes, ...]
    roster_version: int
    seal_key: Secret = field(default_factory=lambda: ERASED)
    mask_key: Secret = field(default_factory=lambda: ERASED)
    seed: Secret = field(default_factory=lambda: ERASED)
    rounding: Secret = field(default_factory=lambda: ERASED)
    keys: tuple[Signed, ...] = ()
    dealers: tuple[bytes, ...] = ()
    held: tuple[Held, ...] = ()
    masked_digest: bytes = b""
    masked: Signed | None = None
    survivors: tuple[bytes, ...] = ()
    view: bytes = b""
    answers: tuple[Answer, ...] = ()
    earlier: tuple[Exposure, ...] = ()
    sharing: Sharing | None = None
    refusal: Refusal | None = None

    @property
    def public_key_of(self) -> Mapping[bytes, bytes]:
        """The Ed25519 key of each participant."""
        return dict(zip(self.descriptor.participants, self.public_keys, strict=True))

    @property
    def members(self) -> tuple[bytes, ...]:
        """U1: the sites that sent keys."""
        return tuple(message.sender for message in self.keys)

    @property
    def threshold(self) -> int:
        """t, over U1."""
        return self.descriptor.share_threshold(len(self.keys))

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """The attempts at this round that a server might still open, this one included."""
        if self.masked is None:
            return self.earlier
        return (*self.earlier, Exposure(self.members, self.threshold))

    def answer_to(self, message: bytes) -> Answer | None:
        """What was answered to this very message, if it was."""
        digest = hashlib.sha256(message).digest()
        return next((answer for answer in self.answers if answer.request == digest), None)

    def ended(self, refusal: Refusal) -> SiteState:
        """The same, over: no secret and no answer is left, only what a later attempt must know."""
        gone = replace(self.erased(), held=(), answers=(), dealers=(), survivors=(), view=b"", sharing=None)
        return replace(gone, stage=Stage.ENDED, refusal=refusal)

    def remembered(self) -> SiteState:
        """What is worth keeping once the round is over: that it was, and what a later attempt must be held against."""
        return replace(
            self.erased(),
            keys=(),
            dealers=(),
            held=(),
            masked=None,
            survivors=(),
            view=b"",
            answers=(),
            sharing=None,
            earlier=self.exposures,
        )

    def erased(self) -> SiteState:
        """The same without this site's own secrets; the shares it holds stay."""
        return replace(self, seal_key=ERASED, mask_key=ERASED, seed=ERASED, rounding=ERASED)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What came of a message.

    Attributes:
        state: to be stored before anything leaves.
        reply: to be sent; None where nothing is.
        words: the masked update that goes with a Masked message.
        refusal: why the session has ended, or this message was ignored.
    """

    state: SiteState
    reply: bytes | None = field(default=None, repr=False)
    words: Words | None = field(default=None, repr=False)
    refusal: Refusal | None = None


# By kind of message: after which stage it is expected, and how it is answered.
Answers: TypeAlias = dict[Kind, tuple[Stage, Callable[[SiteState, bytes, Member], tuple[SiteState, bytes]]]]


def answered(state: SiteState, message: bytes, reply: bytes) -> Step:
    """The step that answers a message, and remembers the answer."""
    answer = Answer(hashlib.sha256(message).digest(), reply)
    return Step(replace(state, answers=(*state.answers, answer)), reply or None)
