"""The server's half of a secure sum: the sites' messages in, the next messages to them out.

A collection depends on nothing but its descriptor, its roster and the messages received and stages closed, in order.
A server that was killed builds the same one, with the same bytes, from those it has stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from ...errors import ConfigError, SecureSumFailed
from .checks import require_distinct_keys, require_enough, session_graph, view_digest
from .codes import AbortCode, Refusal, abort, refusal_of
from .descriptor import SessionDescriptor
from .graph import Graph
from .inbox import Inbox
from .keys import agree, fresh_secret, loaded
from .messages import (
    Complaint,
    Deliver,
    Keys,
    Offer,
    Sealed,
    Shares,
    Unmask,
    Which,
    frame,
    max_message_bytes,
    require_sorted,
    signed_list,
)
from .roster import Roster
from .shamir import is_share
from .signing import Kind, Signed


class Phase(IntEnum):
    """Which of the sites' messages is being collected; the value is that of its kind."""

    KEYS = Kind.KEYS
    SHARES = Kind.SHARES
    MASKED = Kind.MASKED
    ACKS = Kind.ACK
    UNMASK = Kind.UNMASK
    DEALS = Kind.DEAL  # from here on in sessions of sketches only
    AGREEMENTS = Kind.AGREE
    PRODUCTS = Kind.PRODUCTS
    SUMS = Kind.SUM
    CONFIRMATIONS = Kind.CONFIRM


_NEXT = {
    Phase.KEYS: Phase.SHARES,
    Phase.SHARES: Phase.MASKED,
    Phase.MASKED: Phase.ACKS,
    Phase.ACKS: Phase.UNMASK,
}


def offered(descriptor: SessionDescriptor, roster: Roster) -> bytes:
    """The offer of a session."""
    return frame(Kind.OFFER, descriptor.sid, Offer(descriptor.to_bytes(), roster.to_bytes()).to_bytes())


@dataclass(slots=True)
class SumCollection:
    """One session at the server.

    ``receive`` takes the sites' messages; ``close`` ends a phase and says what each site is sent next. The caller
    closes when ``waiting`` is empty or the phase's deadline has passed, and opens the sum (``opening.open_sum``) when
    the last phase is over.

    Raises:
        ConfigError: a participant is not in the roster.
    """

    descriptor: SessionDescriptor
    roster: Roster
    phase: Phase = Phase.KEYS
    keys: dict[bytes, Signed] = field(default_factory=dict)
    shares: dict[bytes, Shares] = field(default_factory=dict)
    complaints: dict[bytes, set[bytes]] = field(default_factory=dict)
    masked: dict[bytes, Signed] = field(default_factory=dict)
    acks: dict[bytes, Signed] = field(default_factory=dict)
    unmask: dict[bytes, Unmask] = field(default_factory=dict)
    _inbox: Inbox = field(init=False)
    _asked: frozenset[bytes] = frozenset()
    _sid: bytes = b""
    _agreement_keys: set[bytes] = field(default_factory=set, repr=False)
    _graph: Graph | None = None
    _view: bytes = b""

    def __post_init__(self) -> None:
        self._asked = frozenset(self.descriptor.participants)
        self._sid = self.descriptor.sid
        keys = self.roster.by_id
        if not set(self.descriptor.participants) <= set(keys):
            raise ConfigError("the session has participants that are not in the roster")
        self._inbox = Inbox(self._sid, {site: keys[site] for site in self.descriptor.participants})

    @property
    def graph(self) -> Graph:
        """Who masks with whom; known once the keys are."""
        if self._graph is None:
            self._graph = session_graph(self.descriptor, list(self.keys.values()))
        return self._graph

    @property
    def threshold(self) -> int:
        """t, over the sites that have sent keys."""
        return self.descriptor.share_threshold(len(self.keys))

    @property
    def view(self) -> bytes:
        """What an acknowledgement is for; known once the survivors are."""
        return self._view

    @property
    def revealing(self) -> bool:
        """Whether sites may have given shares away: then the round is spent and must not be tried again."""
        return self.phase is Phase.UNMASK

    @property
    def waiting(self) -> frozenset[bytes]:
        """The sites still expected in this phase; none once a dealer has spoilt the session."""
        if self.spoilers:
            return frozenset()
        return self._asked - self._inbox.senders(Kind(self.phase))

    def offer(self) -> bytes:
        """What every participant is sent first."""
        return offered(self.descriptor, self.roster)

    def receive(self, message: bytes, *, words_digest: bytes | None = None, num_bytes: int = 0) -> Refusal | None:
        """Take a message of a site, or say why it is refused; the round goes on either way.

        Args:
            message: as it came.
            words_digest: with a Masked message, the SHA-256 of the words that came with it
            num_bytes: and their size.
        """
        try:
            self._take(message, words_digest, num_bytes)
        except SecureSumFailed as error:
            return refusal_of(error)
        return None

    def _take(self, data: bytes, words_digest: bytes | None, num_bytes: int) -> None:
        limit = max_message_bytes(self.descriptor.num_sites)
        if len(data) > limit:
            raise abort(AbortCode.BAD_MESSAGE, f"the message has {len(data)} bytes, at most {limit}")
        self._inbox.take(
            Signed.from_bytes(data),
            lambda message: self._keep(message, words_digest, num_bytes),
            expected={Kind.MASKED, Kind.COMPLAINT} if self.phase is Phase.MASKED else {Kind(self.phase)},
            asked=self._asked,
        )

    def _keep(self, message: Signed, words_digest: bytes | None, num_bytes: int) -> None:
        sender, body = message.sender, message.body
        match message.kind:
            case Kind.KEYS:
                self._keep_keys(message)
            case Kind.SHARES:
                shares = Shares.from_bytes(body)
                if [item.other for item in shares.sealed] != list(self.graph.neighbours(sender)):
                    raise abort(AbortCode.BAD_LIST, "the shares are not one for each holder, in order", [sender])
                self.shares[sender] = shares
            case Kind.COMPLAINT:
                dealers = Complaint.from_bytes(body).dealers
                require_sorted(dealers, "the complaint")
                if not set(dealers) <= set(self.shares) & set(self.graph.neighbours(sender)):
                    raise abort(AbortCode.BAD_LIST, "the complaint is not about dealers of this site", [sender])
                for dealer in dealers:
                    self.complaints.setdefault(dealer, set()).add(sender)
            case Kind.MASKED:
                size = self.descriptor.num_words * self.descriptor.ring.word_bytes
                if num_bytes != size or words_digest != body:
                    reason = f"the masked words are not the {size} bytes that were signed"
                    raise abort(AbortCode.BAD_MESSAGE, reason, [sender])
                self.masked[sender] = message
            case Kind.ACK:
                if message.body != self._view:
                    raise abort(AbortCode.BAD_LIST, "the site has acknowledged another view", [sender])
                self.acks[sender] = message
            case _:
                self.unmask[sender] = self.checked(sender, Unmask.from_bytes(body))

    def _keep_keys(self, message: Signed) -> None:
        """Keys that would make every other site leave are refused here, so that one site cannot end a session."""
        keys, own = Keys.from_bytes(message.body), loaded(fresh_secret())
        for key in (keys.seal_key, keys.mask_key):
            agree(own, key)
        require_distinct_keys([message])
        if self._agreement_keys & {keys.seal_key, keys.mask_key}:
            raise abort(AbortCode.BAD_KEY, "another site has sent the same public key", [message.sender])
        self._agreement_keys |= {keys.seal_key, keys.mask_key}
        self.keys[message.sender] = message

    def checked(self, sender: bytes, unmask: Unmask) -> Unmask:
        """The shares that were asked for, or fewer; which secret each is of was never the server's to say.

        Raises:
            SecureSumFailed: "bad-share" or "bad-list".
        """
        owners = [item.owner for item in unmask.shares]
        require_sorted(owners, "the shares revealed")
        held = set(self.graph.holders(sender)) & set(self.shares)
        for item in unmask.shares:
            which = Which.SEED if item.owner in self.masked else Which.MASK_KEY
            if item.owner not in held or item.which is not which or not is_share(item.share):
                raise abort(AbortCode.BAD_SHARE, "a share that was not asked for, or is none", [sender])
        return unmask

    @property
    def spoilers(self) -> tuple[bytes, ...]:
        """Dealers about whom more sites complain than may lie."""
        if self.phase is not Phase.MASKED:
            return ()
        c = self.descriptor.colluders
        return tuple(dealer for dealer, unhappy in sorted(self.complaints.items()) if len(unhappy) > c)

    @property
    def _fewest_good(self) -> int:
        """How many hold good shares of the dealer complained about of whom fewest do; t where nobody complains."""
        holding = {dealer: set(self.shares) & set(self.graph.holders(dealer)) for dealer in self.complaints}
        return min((len(holding[dealer] - self.complaints[dealer]) for dealer in holding), default=self.threshold)

    def close(self) -> Mapping[bytes, bytes]:
        """End the phase: what each site that is still in the session is sent next.

        Raises:
            SecureSumFailed: "too-few" sites are left, or "bad-dealer": the attempt is over, to be tried again
                without the sites blamed.
        """
        messages = {
            Phase.KEYS: self._key_list,
            Phase.SHARES: self._deliveries,
            Phase.MASKED: self._survivors,
            Phase.ACKS: self._ack_list,
        }[self.phase]()
        self._asked = frozenset(messages)
        self.phase = _NEXT[self.phase]
        return messages

    def narrow(self, selected: Collection[bytes], view: bytes, asked: Collection[bytes]) -> None:
        """Let the sum be over some of the survivors only; the others count as dropped out.

        Only before anybody has acknowledged the survivors.

        Args:
            selected: the sites left in the sum.
            view: what an acknowledgement is for, in place of the survivors.
            asked: who may acknowledge.
        """
        self.masked = {site: self.masked[site] for site in sorted(selected)}
        self._view, self._asked = view, frozenset(asked)

    def _key_list(self) -> dict[bytes, bytes]:
        require_enough(len(self.keys), self.descriptor.min_sites, "sites have sent keys")
        self.keys = dict(sorted(self.keys.items()))
        message = frame(Kind.KEY_LIST, self._sid, signed_list(list(self.keys.values())))
        return dict.fromkeys(self.keys, message)

    def _deliveries(self) -> dict[bytes, bytes]:
        require_enough(len(self.shares), self.descriptor.min_sites, "sites have dealt shares")
        dealers = tuple(sorted(self.shares))
        sealed: dict[bytes, list[Sealed]] = {site: [] for site in dealers}
        for dealer in dealers:
            for item in self.shares[dealer].sealed:
                if item.other in sealed:
                    sealed[item.other].append(Sealed(dealer, item.ciphertext))
        sid = self._sid
        return {site: frame(Kind.DELIVER, sid, Deliver(dealers, tuple(sealed[site])).to_bytes()) for site in dealers}

    def _survivors(self) -> dict[bytes, bytes]:
        if spoilers := self.spoilers:
            raise abort(AbortCode.BAD_DEALER, "shares do not open; the round is tried again without a site", spoilers)
        require_enough(self._fewest_good, self.threshold, "holders have good shares of a dealer")  # whoever lies
        require_enough(len(self.masked), self.descriptor.needed_survivors, "masked updates have arrived")
        self.masked = dict(sorted(self.masked.items()))
        masked = list(self.masked.values())
        self._view = view_digest(self._sid, list(self.keys.values()), sorted(self.shares), masked)
        return dict.fromkeys(self.masked, frame(Kind.SURVIVORS, self._sid, signed_list(masked)))

    def _ack_list(self) -> dict[bytes, bytes]:
        require_enough(len(self.acks), self.descriptor.needed_acks, "sites have acknowledged the survivors")
        acks = [self.acks[site] for site in sorted(self.acks)]
        return dict.fromkeys(sorted(self.acks), frame(Kind.ACK_LIST, self._sid, signed_list(acks)))
