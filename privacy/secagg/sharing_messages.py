"""The messages of computing on shares: what is dealt, what holders answer, what is selected.

What a site deals is signed with the digests of its sealed boxes; the boxes follow it, and go on to their holders one by
one. So nobody can pass on another box than was dealt, and whoever cannot open one knows that it is the dealer's fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import ProtocolError
from ..sharing.field import ELEMENT_BYTES, Elements, from_bytes, to_bytes
from ..sharing.products import pair_count
from .codes import AbortCode, abort
from .descriptor import Mode, SessionDescriptor
from .encoding import DIGEST_BYTES, SITE_ID_BYTES, Reader, listed, number
from .holders import MAX_HOLDERS
from .keys import PROTOCOL
from .messages import Unmask, max_message_bytes, read_signed, require_sorted, signed_list
from .share_terms import BOX_BYTES, boxes_bytes, length_of, width_of
from .signing import HEADER_BYTES, SIGNATURE_BYTES, Kind, Signed

_WEIGHT_BYTES = 4

# The messages of a site that have boxes behind them.
_WITH_BOXES = frozenset({Kind.DEAL, Kind.AGREE})


def max_session_message_bytes(session: SessionDescriptor) -> int:
    """No message but an offer is longer in this session; to be checked before one is read.

    With sketches, beside what a sum needs: n boxes of 8 (2048 + n (n + 1) / 2 + 2) + 16 bytes, and a signed deal of
    each site with n digests. That is 0.2 MB for 10 sites, 0.4 MB for 20 and 2.4 MB for 64. A proof that they are short
    takes 8 (128 (w + 1) + 1) + 36 bytes more for each of n: 0.4 MB, 0.9 MB and 3.9 MB. With whole updates there are
    ⌈d/K⌉ elements in place of 2048.
    """
    longest = max_message_bytes(session.num_sites)
    if session.mode not in (Mode.SKETCH, Mode.SHARES):
        return longest
    columns = -(-length_of(session) // session.packing)
    return longest + boxes_bytes(session.num_sites, columns, width_of(session))


def deal_bytes(num_members: int, num_elements: int) -> int:
    """How long a Deal message with its boxes is, each of so many elements."""
    signed = HEADER_BYTES + DIGEST_BYTES + 4 + (num_members - 1) * (SITE_ID_BYTES + DIGEST_BYTES) + SIGNATURE_BYTES
    return signed + 4 + (num_members - 1) * (BOX_BYTES + ELEMENT_BYTES * num_elements)


@dataclass(frozen=True, slots=True)
class Box:
    """What a dealer has sealed for a holder: who the other of the two is, and bytes that only they can read."""

    other: bytes
    ciphertext: bytes = field(repr=False)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the ciphertext."""
        return hashlib.sha256(self.ciphertext).digest()

    def to_bytes(self) -> bytes:
        """id ‖ length 4 ‖ ciphertext."""
        return self.other + number(len(self.ciphertext), 4) + self.ciphertext


def digests_of(boxes: Sequence[Box]) -> dict[bytes, bytes]:
    """The digest of each box, by who the other is."""
    return {box.other: box.digest for box in boxes}


def read_boxes(reader: Reader) -> tuple[Box, ...]:
    """A list of boxes, sorted by who the other is. Raises SecureSumFailed("bad-message" or "bad-list")."""
    count = reader.count(SITE_ID_BYTES + 4)
    if count > MAX_HOLDERS:
        raise abort(AbortCode.BAD_MESSAGE, f"there are {count} boxes, expected one a site: at most {MAX_HOLDERS}")
    found = tuple(Box(reader.take(SITE_ID_BYTES), reader.take(reader.number(4))) for _ in range(count))
    require_sorted([box.other for box in found], "the list of boxes")
    return found


@dataclass(frozen=True, slots=True)
class Deal:
    """Site: what it deals after, and the digest of its box for each other survivor.

    As a deal message, after the view in which it has sent its masked update. As an agree message, after the deals
    agreed on: boxes of proofs, or none where nothing is proved.
    """

    view: bytes
    digests: Mapping[bytes, bytes]

    def to_bytes(self) -> bytes:
        """view 32 ‖ list of holder 16 ‖ SHA-256 of its box 32, sorted."""
        return self.view + listed(holder + self.digests[holder] for holder in sorted(self.digests))

    @staticmethod
    def from_bytes(body: bytes) -> Deal:
        """Read it. Raises SecureSumFailed("bad-message" or "bad-list")."""
        reader = Reader(body, "a deal")
        view, count = reader.take(DIGEST_BYTES), reader.count(SITE_ID_BYTES + DIGEST_BYTES)
        found = [(reader.take(SITE_ID_BYTES), reader.take(DIGEST_BYTES)) for _ in range(count)]
        reader.end()
        require_sorted([holder for holder, _ in found], "the deal")
        return Deal(view, dict(found))


def agreement_on(sid: bytes, view: bytes, deals: Sequence[Signed]) -> bytes:
    """What everybody agrees on before answering: SHA-256("fl-sa/v1/deals" ‖ sid ‖ view ‖ the deals).

    It is the challenge of every test as well: nobody knew it when dealing.
    """
    return hashlib.sha256(PROTOCOL + b"deals" + sid + view + signed_list(deals)).digest()


def agreement_on_proofs(sid: bytes, agreement: bytes, proofs: Sequence[Signed]) -> bytes:
    """The same for proofs: SHA-256("fl-sa/v1/proofs" ‖ sid ‖ agreement on the deals ‖ the agree messages)."""
    return hashlib.sha256(PROTOCOL + b"proofs" + sid + agreement + signed_list(proofs)).digest()


def view_of_selection(sid: bytes, agreement: bytes, selection: Selection) -> bytes:
    """What an acknowledgement of a selection is for: SHA-256("fl-sa/v1/select" ‖ sid ‖ agreement ‖ selection)."""
    return hashlib.sha256(PROTOCOL + b"select" + sid + agreement + selection.to_bytes()).digest()


def with_boxes(deal: Signed, boxes: Sequence[Box]) -> bytes:
    """A deal or an agreement as it is sent: the signed message, then the boxes."""
    return deal.to_bytes() + listed(box.to_bytes() for box in boxes)


def split_boxes(data: bytes) -> tuple[Signed, tuple[Box, ...]]:
    """A site's message and the boxes behind it, if its kind has any. Raises SecureSumFailed("bad-message")."""
    reader = Reader(data, "a message of a site")
    message = Signed.read(reader)
    boxes = read_boxes(reader) if message.kind in _WITH_BOXES else ()
    reader.end()
    return message, boxes


@dataclass(frozen=True, slots=True)
class Boxes:
    """Server to site: who has agreed to what was dealt, and each dealer's box and proof for this site."""

    agreements: tuple[Signed, ...]
    boxes: tuple[Box, ...]
    proofs: tuple[Box, ...] = ()

    def to_bytes(self) -> bytes:
        """Three lists."""
        boxes, proofs = (listed(box.to_bytes() for box in those) for those in (self.boxes, self.proofs))
        return signed_list(self.agreements) + boxes + proofs

    @staticmethod
    def from_bytes(body: bytes, kind: Kind, sid: bytes) -> Boxes:
        """Read it; the agreements are of a kind. Raises SecureSumFailed("bad-message" or "bad-list")."""
        reader = Reader(body, "boxes")
        found = Boxes(read_signed(reader, kind, sid), read_boxes(reader), read_boxes(reader))
        reader.end()
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Site: what it answers of the shares it holds, as field elements.

    Attributes:
        products_A: the masked product of each pair of dealers.
        degrees_N: of each dealer's shares, the test of their degree.
        masks_Z: of each mask dealer's masks, the test of their sum.
        short_S: of each dealer's proof, the test of its shortness; none where nothing is proved.
    """

    products_A: Elements = field(repr=False)
    degrees_N: Elements = field(repr=False)
    masks_Z: Elements = field(repr=False)
    short_S: Elements = field(repr=False)

    def to_bytes(self) -> bytes:
        """8 bytes an element, little-endian, one array after the other."""
        return b"".join(to_bytes(part) for part in (self.products_A, self.degrees_N, self.masks_Z, self.short_S))

    @staticmethod
    def from_bytes(body: bytes, num_dealers: int, num_mask_dealers: int, num_proofs: int) -> Products:
        """Read it. Raises SecureSumFailed("bad-message")."""
        reader = Reader(body, "an answer of products")
        counts = (pair_count(num_dealers), num_dealers, num_mask_dealers, num_proofs)
        products_A, degrees_N, masks_Z, short_S = (read_elements(reader, count) for count in counts)
        reader.end()
        return Products(products_A, degrees_N, masks_Z, short_S)


def read_elements(reader: Reader, count: int) -> Elements:
    """So many field elements. Raises SecureSumFailed("bad-message")."""
    try:
        return from_bytes(reader.take(ELEMENT_BYTES * count), count)
    except ProtocolError as error:
        raise abort(AbortCode.BAD_MESSAGE, str(error)) from None


@dataclass(frozen=True, slots=True)
class Selection:
    """Server: the sites whose vectors are summed, and the whole number by which each is multiplied."""

    weights: Mapping[bytes, int]

    @property
    def sites(self) -> tuple[bytes, ...]:
        """The sites, sorted."""
        return tuple(sorted(self.weights))

    def to_bytes(self) -> bytes:
        """List of id 16 ‖ weight 4, sorted."""
        return listed(site + number(self.weights[site], _WEIGHT_BYTES) for site in self.sites)

    @staticmethod
    def from_bytes(body: bytes) -> Selection:
        """Read it. Raises SecureSumFailed("bad-message" or "bad-list")."""
        reader = Reader(body, "a selection")
        count = reader.count(SITE_ID_BYTES + _WEIGHT_BYTES)
        found = [(reader.take(SITE_ID_BYTES), reader.number(_WEIGHT_BYTES)) for _ in range(count)]
        reader.end()
        require_sorted([site for site, _ in found], "the selection")
        return Selection(dict(found))


@dataclass(frozen=True, slots=True, eq=False)
class SumAnswer:
    """Site: its shares of the dealers' secrets, as in an unmask message, and its share of the selected vectors' sum."""

    unmask: Unmask
    sum_L: Elements = field(repr=False)

    def to_bytes(self) -> bytes:
        """The unmask message's list ‖ 8 bytes an element."""
        return self.unmask.to_bytes() + to_bytes(self.sum_L)

    @staticmethod
    def from_bytes(body: bytes, length: int) -> SumAnswer:
        """Read it. Raises SecureSumFailed("bad-message")."""
        cut = max(0, len(body) - ELEMENT_BYTES * length)
        reader = Reader(body[cut:], "an answer of sums")
        sum_L = read_elements(reader, length)
        return SumAnswer(Unmask.from_bytes(body[:cut]), sum_L)
