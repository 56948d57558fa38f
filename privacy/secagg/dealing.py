"""What a dealer puts into each holder's box, and what a holder makes of the boxes: field elements, no messages.

A box holds, in this order, the holder's shares of the dealer's vector, of a mask for the test of its degree, of one for
the test of its shortness if that is proved, and, from a mask dealer, of a mask for each pair of dealers and of one that
hides the test of those. A proof holds its shares of the bits of the vector's projections, which are drawn from all the
deals. All survivors are dealers and holders alike, and each knows all the others.

Shape suffixes: N dealers, B elements of a box, L of a vector, A pairs of survivors, Z mask dealers, R projections.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ProtocolError
from ..secrets import Secret
from ..sharing.dealers import degree_answers, mask_answers
from ..sharing.field import Elements, Integers, Stream, from_bytes, from_integers, to_bytes
from ..sharing.packing import Packing, deal, degree_masks, hidden, hidden_blocks, vanishing_masks, zero_sum_masks
from ..sharing.products import pair_count, product_answers
from ..sharing.shortness import bits_of, projections, shortness_answers
from ..sharing.sums import sum_answers
from .checks import require_enough
from .descriptor import SessionDescriptor
from .holders import answers_needed
from .prg import stream
from .share_terms import length_of, width_of
from .sharing_messages import Products


@dataclass(frozen=True, slots=True)
class Dealing:
    """Who deals to whom, and how: the same for all who have the same survivors.

    Attributes:
        members: the survivors, sorted: dealers and holders.
        packing: how a vector is shared among them.
        length: L, values of a vector.
        mask_dealers: who deals masks as well, sorted.
        width: w, projections of a vector being within ±2^w; 0 where vectors are not proved short.
    """

    members: tuple[bytes, ...]
    packing: Packing
    length: int
    mask_dealers: tuple[bytes, ...]
    width: int = 0

    @property
    def columns(self) -> int:
        """How many elements a share of a vector has."""
        return self.packing.columns(self.length)

    @property
    def num_tests(self) -> int:
        """Masks for tests in every box: of the degree, and of the shortness if that is proved."""
        return 2 if self.width else 1

    @property
    def num_masks(self) -> int:
        """A: one mask for each pair of members."""
        return pair_count(len(self.members))

    def num_elements(self, dealer: bytes) -> int:
        """B, of a box of this dealer."""
        return self.columns + self.num_tests + (self.num_masks + 1) * (dealer in self.mask_dealers)

    def places(self, sites: Sequence[bytes]) -> list[int]:
        """The places of some members among all."""
        return [self.members.index(site) for site in sites]

    def require_masks(self, dealers: Sequence[bytes]) -> None:
        """Of the mask dealers T + 1 are among the dealers, so that one does not collude.

        Raises:
            SecureSumFailed: "too-few".
        """
        masking = set(self.mask_dealers) & set(dealers)
        require_enough(len(masking), self.packing.colluders + 1, "sites have dealt masks")


def dealing_of(session: SessionDescriptor, survivors: Sequence[bytes]) -> Dealing:
    """How these survivors share their sketches, or these members their updates.

    Masks come from the T + 1 + D of them with the lowest SHA-256(sid ‖ id): D may vanish, T collude.

    Raises:
        SecureSumFailed: "too-few" survivors for the session's T and E.
    """
    n, k, t, e = len(survivors), session.packing, session.privacy_threshold, session.wrong_holders
    needed = answers_needed(t, e, k)
    require_enough(n, needed, "sites are left to share vectors")
    sid = session.sid
    drawn = sorted(survivors, key=lambda site: hashlib.sha256(sid + site).digest())
    masking = tuple(sorted(drawn[: t + 1 + session.dropouts]))
    packing = Packing(n, k, t, n - needed, e)
    return Dealing(tuple(survivors), packing, length_of(session), masking, width_of(session))


def dealt(dealing: Dealing, dealer: bytes, vector_L: Integers, draw: Stream) -> Elements:
    """The boxes of a dealer, one row for each member.

    Args:
        draw: private randomness, of the operating system.

    Raises:
        InvalidUpdate: a value is too large to be shared.
    """
    packing = dealing.packing
    parts = [deal(packing, hidden_blocks(packing, from_integers(vector_L), draw)), degree_masks(packing, 1, draw)]
    if dealing.width:
        parts.append(vanishing_masks(packing, 1, draw))
    if dealer in dealing.mask_dealers:
        parts.append(zero_sum_masks(packing, dealing.num_masks + 1, draw))
    return np.hstack(parts)


def proved(dealing: Dealing, vector_L: Integers, agreement: bytes, draw: Stream) -> Elements:
    """The proofs of a dealer that its vector is short, one row for each member.

    Args:
        agreement: the deals agreed on, from which the projections are drawn.
        draw: private randomness, of the operating system.

    Raises:
        InvalidUpdate: the vector is not short.
    """
    packing = dealing.packing
    blocks_KL = hidden_blocks(packing, from_integers(vector_L), draw)[: packing.blocks]
    bits_KB = bits_of(projections(blocks_KL, challenged(agreement, b"projections")), dealing.width)
    return deal(packing, hidden(packing, bits_KB, draw))


def opened(box: Secret | None, count: int) -> Elements:
    """The ``count`` elements of a box or proof; zeros where it could not be opened or holds something else.

    That costs nobody a secret: the box is what its dealer has signed, so that a dealer whose masks are then missing
    is a dishonest one. The tests show it as they show every other wrong share.
    """
    try:
        return from_bytes(box.reveal_bytes() if box else b"", count)
    except ProtocolError:
        return np.zeros(count, np.uint64)


def shares_of(dealing: Dealing, box_B: Elements) -> Secret:
    """The part of a box that is still needed for the sum."""
    return Secret(to_bytes(box_B[: dealing.columns]))


def products(
    dealing: Dealing,
    boxes: Mapping[bytes, Elements],
    proofs: Mapping[bytes, Elements],
    agreement: bytes,
    challenge: bytes,
) -> Products:
    """What a holder answers, given its boxes from all dealers.

    Args:
        proofs: of the same dealers; none where nothing is proved.
        agreement: the deals agreed on.
        challenge: 32 public bytes that no dealer knew when it dealt or proved.
    """
    dealers, columns = sorted(boxes), dealing.columns
    masking = [dealer for dealer in dealing.mask_dealers if dealer in boxes]
    shares_NL = np.stack([boxes[dealer][:columns] for dealer in dealers])
    tests_NT = np.stack([boxes[dealer][columns : columns + dealing.num_tests] for dealer in dealers])
    masks_ZA = np.stack([boxes[dealer][-dealing.num_masks - 1 : -1] for dealer in masking])
    hiding_Z = np.array([boxes[dealer][-1] for dealer in masking])
    bits_NB = np.stack([proofs[dealer] for dealer in dealers]) if proofs else np.zeros((len(dealers), 0), np.uint64)
    short_S = np.zeros(0, np.uint64)
    if dealing.width:
        projected_NR = projections(shares_NL, challenged(agreement, b"projections"))
        drawn = challenged(challenge, b"shortness")
        short_S = shortness_answers(projected_NR, bits_NB, tests_NT[:, 1], dealing.width, drawn)
    return Products(
        product_answers(shares_NL, masks_ZA[:, pairs(dealing, dealers)]),
        degree_answers(shares_NL, bits_NB, tests_NT[:, 0], challenged(challenge, b"degrees")),
        mask_answers(masks_ZA, hiding_Z, challenged(challenge, b"masks")),
        short_S,
    )


def sums(dealing: Dealing, shares: Mapping[bytes, Secret], weights: Mapping[bytes, int]) -> Elements:
    """What a holder answers for the sum of the selected vectors, L elements."""
    shares_NL = np.stack([from_bytes(shares[site].reveal_bytes(), dealing.columns) for site in sorted(weights)])
    return sum_answers(shares_NL, np.array([weights[site] for site in sorted(weights)]))


def pairs(dealing: Dealing, dealers: Sequence[bytes]) -> list[int]:
    """Where the pairs of these dealers are among the pairs of all members, both as ``np.triu_indices`` has them."""
    places, n = dealing.places(dealers), len(dealing.members)
    rows = [a * n - a * (a - 1) // 2 - a for a in range(n)]
    return [rows[a] + b for i, a in enumerate(places) for b in places[i:]]


def challenged(challenge: bytes, what: bytes) -> Stream:
    """The public stream of one test."""
    return stream(Secret(hashlib.sha256(challenge + what).digest()))
