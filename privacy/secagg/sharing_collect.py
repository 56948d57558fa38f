"""The server's half of a session of sketches: a secure sum in which, between masking and unmasking, a rule chooses.

In one of shares nothing is masked: once the keys are known, whole updates are dealt as sketches are otherwise.

Like ``SumCollection`` it depends on nothing but what it was made with and the messages received and phases closed, in
order; the rule must choose alike from alike, and the private randomness follows from a secret that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...errors import SecureSumFailed
from ..secrets import Secret
from ..sharing.field import ELEMENT_BYTES, Elements
from .checks import require_enough, require_hidden, view_digest
from .codes import AbortCode, Refusal, abort, refusal_of
from .collect import Phase, SumCollection
from .dealing import Dealing, dealing_of
from .descriptor import Mode, SessionDescriptor
from .inbox import Inbox
from .judging import Judged, judge
from .keys import TAG_BYTES, derive
from .messages import frame, signed_list
from .prg import stream
from .roster import Roster
from .share_terms import proof_elements
from .sharing_messages import (
    Box,
    Boxes,
    Deal,
    Products,
    Selection,
    SumAnswer,
    agreement_on,
    agreement_on_proofs,
    deal_bytes,
    digests_of,
    max_session_message_bytes,
    split_boxes,
    view_of_selection,
)
from .signing import Kind, Signed
from .sketch_terms import bound_of, shift_of

# Which of the sites judged are to be in the sum, with shares also how often. It must not depend on anything else.
Choice: TypeAlias = Callable[[Judged], Collection[bytes] | Mapping[bytes, int]]

# How messages begin that are those of a secure sum.
_OF_A_SUM = frozenset(bytes([kind]) for kind in (Kind.KEYS, Kind.SHARES, Kind.COMPLAINT, Kind.MASKED, Kind.ACK))


@dataclass(slots=True)
class SharingCollection:
    """One session of sketches or shares at the server; driven as a ``SumCollection`` is.

    Acknowledgements that come before there is a selection are refused: they would be of the survivors.

    When the last phase is over, ``sharing_opening`` gives the sum.

    Attributes:
        descriptor: the session.
        roster: who is who.
        secret: 32 bytes of the operating system's randomness, drawn once for the session and stored with it.
        choose: the rule.
        masks: the secure sum around it.
        survivors: whose masked updates, or with shares whose keys have come, once that is settled, in their ``view``.
        deals, products, sums: what the sites have sent.
        judged: what the rule was shown, and who was refused why; once the products are there.
        weights: whose updates are in the sum, and what each weighs.

    Raises:
        ConfigError: a participant is not in the roster.
    """

    descriptor: SessionDescriptor
    roster: Roster
    secret: Secret
    choose: Choice = field(repr=False)
    masks: SumCollection = field(init=False)
    deals: dict[bytes, Signed] = field(default_factory=dict)
    products: dict[bytes, Products] = field(default_factory=dict)
    sums: dict[bytes, Elements] = field(default_factory=dict, repr=False)
    survivors: tuple[bytes, ...] = ()
    view: bytes = b""
    judged: Judged | None = None
    weights: Mapping[bytes, int] = field(default_factory=dict)
    _boxes: dict[tuple[bytes, Kind], dict[bytes, Box]] = field(default_factory=dict, repr=False)
    _inbox: Inbox = field(init=False)
    _between: Phase | None = None
    _asked: frozenset[bytes] = frozenset()
    _agreement: bytes = b""
    _challenge: bytes = b""

    def __post_init__(self) -> None:
        self.masks = SumCollection(self.descriptor, self.roster)
        keys = self.roster.by_id
        self._inbox = Inbox(self.descriptor.sid, {site: keys[site] for site in self.descriptor.participants})

    @property
    def phase(self) -> Phase:
        """Which of the sites' messages is being collected."""
        return self._between or (Phase.SUMS if self.revealing else self.masks.phase)

    @property
    def revealing(self) -> bool:
        """Whether sites may have given shares away: then the round is spent and must not be tried again."""
        return self.masks.revealing

    @property
    def waiting(self) -> frozenset[bytes]:
        """The sites still expected in this phase."""
        if self.phase is self.masks.phase:
            return self.masks.waiting
        return self._asked - self._inbox.senders(Kind(self.phase))

    @property
    def selected(self) -> tuple[bytes, ...]:
        """Whose updates are in the sum, sorted."""
        return tuple(sorted(self.weights))

    @property
    def came(self) -> frozenset[bytes]:
        """Whose updates have come: masked, or in shares."""
        if self.descriptor.mode is Mode.SHARES:
            return self._inbox.senders(Kind.DEAL)
        return frozenset(self.survivors or self.masks.masked)

    def deal_bytes(self, site: bytes) -> int:
        """How long the Deal message of a survivor is, with its boxes."""
        return deal_bytes(len(self.survivors), self.dealing.num_elements(site))

    @property
    def dealing(self) -> Dealing:
        """How the survivors share their sketches or updates. Raises SecureSumFailed: "too-few" survivors."""
        return dealing_of(self.descriptor, self.survivors)

    def offer(self) -> bytes:
        """What every participant is sent first."""
        return self.masks.offer()

    def receive(self, message: bytes, *, words_digest: bytes | None = None, num_bytes: int = 0) -> Refusal | None:
        """Take a message of a site, or say why it is refused; as ``SumCollection.receive``."""
        if message[:1] in _OF_A_SUM and not (self._between and message[:1] == bytes([Kind.ACK])):
            return self.masks.receive(message, words_digest=words_digest, num_bytes=num_bytes)
        try:
            limit = max_session_message_bytes(self.descriptor)
            if len(message) > limit:
                raise abort(AbortCode.BAD_MESSAGE, f"the message has {len(message)} bytes, at most {limit}")
            signed, boxes = split_boxes(message)
            own = self.phase is not self.masks.phase
            self._inbox.take(
                signed,
                lambda one: self._keep(one, boxes),
                expected={Kind(self.phase)} if own else (),
                asked=self._asked,
            )
        except SecureSumFailed as error:
            return refusal_of(error)
        return None

    def _keep(self, message: Signed, boxes: tuple[Box, ...]) -> None:
        sender, body = message.sender, message.body
        match message.kind:
            case Kind.DEAL:
                self._require_dealt(message, boxes, self.view, self.dealing.num_elements(sender))
                self.deals[sender] = message
            case Kind.AGREE:
                self._require_dealt(message, boxes, self._agreement, proof_elements(self.dealing.width))
            case Kind.CONFIRM:
                if body != self._challenge:
                    raise abort(AbortCode.BAD_LIST, "the site has confirmed other proofs", [sender])
            case Kind.PRODUCTS:
                n, masking = len(self.deals), set(self.dealing.mask_dealers) & set(self.deals)
                self.products[sender] = Products.from_bytes(body, n, len(masking), n * self.descriptor.strict)
            case _:
                answer = SumAnswer.from_bytes(body, self.dealing.columns)
                self.masks.unmask[sender] = self.masks.checked(sender, answer.unmask)
                self.sums[sender] = answer.sum_L

    def _require_dealt(self, message: Signed, boxes: tuple[Box, ...], view: bytes, num_elements: int) -> None:
        """A deal or a proof is a box for every other survivor; kept. Where nothing is proved, there are no boxes."""
        sender, deal = message.sender, Deal.from_bytes(message.body)
        if deal.view != view:
            raise abort(AbortCode.BAD_LIST, "the site has dealt in another view", [sender])
        if set(deal.digests) != (set(self.survivors) - {sender} if num_elements else set()):
            raise abort(AbortCode.BAD_LIST, "the deal is not one for every other survivor", [sender])
        size = ELEMENT_BYTES * num_elements + TAG_BYTES
        if any(len(box.ciphertext) != size for box in boxes):
            raise abort(AbortCode.BAD_MESSAGE, f"the boxes do not hold {size} bytes each", [sender])
        if digests_of(boxes) != deal.digests:
            raise abort(AbortCode.BAD_MESSAGE, "the boxes are not those that were signed", [sender])
        self._boxes[sender, message.kind] = {box.other: box for box in boxes}

    def close(self) -> Mapping[bytes, bytes]:
        """End the phase: what each site that is still in the session is sent next.

        Raises:
            SecureSumFailed: "too-few" sites are left; "bad-dealer": to be tried again without the sites blamed;
                "undecodable": too many lie; "selection-too-small".
            FoedusError: what ``choose`` raises.
        """
        phase = self.phase
        shares = self.descriptor.mode is Mode.SHARES
        close = {
            Phase.KEYS: self._settle_members if shares else self.masks.close,
            Phase.MASKED: self._settle,
            Phase.DEALS: self._list_deals,
            Phase.AGREEMENTS: self._list_proofs if self.descriptor.strict else self._deliver,
            Phase.CONFIRMATIONS: self._deliver,
            Phase.PRODUCTS: self._select,
        }.get(phase, self.masks.close)
        messages = close()
        self._between = (_SHARED if shares else _PROVED if self.descriptor.strict else _BETWEEN).get(phase)
        self._asked = frozenset(messages)
        return messages

    def _settle(self) -> Mapping[bytes, bytes]:
        messages = self.masks.close()
        dealing_of(self.descriptor, tuple(self.masks.masked))
        self.survivors, self.view = tuple(self.masks.masked), self.masks.view
        return messages

    def _settle_members(self) -> Mapping[bytes, bytes]:
        messages = self.masks.close()
        members = tuple(self.masks.keys)
        dealing_of(self.descriptor, members)
        self.survivors = members
        self.view = view_digest(self.descriptor.sid, list(self.masks.keys.values()), (), ())
        self.masks.phase = Phase.ACKS  # nothing is masked, so that only the selection is left to be agreed on
        return messages

    def _list_deals(self) -> Mapping[bytes, bytes]:
        self.deals = dict(sorted(self.deals.items()))
        self._require_dealers()
        session, deals = self.descriptor, list(self.deals.values())
        self._agreement = self._challenge = agreement_on(session.sid, self.view, deals)
        return dict.fromkeys(self.deals, frame(Kind.DEALS, session.sid, signed_list(deals)))

    def _list_proofs(self) -> Mapping[bytes, bytes]:
        session, proofs = self.descriptor, self._inbox.sent(Kind.AGREE)
        self.deals = {site: deal for site, deal in self.deals.items() if site in proofs}
        self._require_dealers()
        listed = list(proofs.values())
        self._challenge = agreement_on_proofs(session.sid, self._agreement, listed)
        return dict.fromkeys(proofs, frame(Kind.PROOFS, session.sid, signed_list(listed)))

    def _require_dealers(self) -> None:
        session = self.descriptor
        needed = max(session.needed_acks, session.needed_survivors, self.dealing.packing.answers_needed)
        require_enough(len(self.deals), needed, "sites have dealt")
        self.dealing.require_masks(tuple(self.deals))

    def _deliver(self) -> Mapping[bytes, bytes]:
        session = self.descriptor
        agreed = self._inbox.sent(Kind.CONFIRM if session.strict else Kind.AGREE)
        require_enough(len(agreed), session.needed_acks, "sites have agreed to the deals")
        messages = {}
        for holder in agreed:
            proofs = self._boxes_for(holder, Kind.AGREE) if session.strict else ()
            boxes = Boxes(tuple(agreed.values()), self._boxes_for(holder, Kind.DEAL), proofs)
            messages[holder] = frame(Kind.BOXES, session.sid, boxes.to_bytes())
        return messages

    def _boxes_for(self, holder: bytes, kind: Kind) -> tuple[Box, ...]:
        return tuple(
            Box(dealer, self._boxes[dealer, kind][holder].ciphertext) for dealer in self.deals if dealer != holder
        )

    def _select(self) -> Mapping[bytes, bytes]:
        session = self.descriptor
        judged = judge(
            self.dealing,
            tuple(self.deals),
            self.products,
            byzantine=session.byzantine,
            shift=None if session.mode is Mode.SHARES else shift_of(session),
            bound=bound_of(session),
            draw=stream(derive(session.sid, self.secret, "server/products")),
        )
        chosen = self.choose(judged)
        weights = dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(chosen, 1)
        if not set(weights) <= set(judged.sites):
            raise ValueError("a rule may only choose from the sites judged")
        selection = Selection(weights)
        require_hidden(weights.values(), session.needed_survivors)
        self.judged, self.weights = judged, weights
        asked = sorted(self.products)
        masked = weights if session.mode is Mode.SKETCH else ()
        self.masks.narrow(masked, view_of_selection(session.sid, self._challenge, selection), asked)
        return dict.fromkeys(asked, frame(Kind.SELECT, session.sid, selection.to_bytes()))


# After which phase comes which of those between masking and acknowledging.
_BETWEEN = {Phase.MASKED: Phase.DEALS, Phase.DEALS: Phase.AGREEMENTS, Phase.AGREEMENTS: Phase.PRODUCTS}
_PROVED = _BETWEEN | {Phase.AGREEMENTS: Phase.CONFIRMATIONS, Phase.CONFIRMATIONS: Phase.PRODUCTS}
_SHARED = _PROVED | {Phase.KEYS: Phase.DEALS}
