"""The steps of sharing whole updates, each as a work to be timed.

Shape suffixes: D coordinates, B elements of a box.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace

import numpy as np
from _timing import Work
from foedus.privacy.secagg.dealing import Dealing, dealing_of, dealt, products, proved, shares_of, sums
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.holders import Reserves, widest_packing
from foedus.privacy.secagg.share_terms import finest_shared_scale
from foedus.privacy.sharing.field import Elements, Integers
from foedus.privacy.sharing.sums import summed

AGREEMENT, CHALLENGE = b"a" * 32, b"c" * 32


def share_works(masked: SessionDescriptor) -> dict[str, Work]:
    """What a site and the server compute on shares; a site holds the same share of everybody.

    Args:
        masked: a session of masks among the same sites, with as many values.
    """
    dealing, update_D = _shared(masked)
    dealer = dealing.mask_dealers[0]
    rows_NB = dealt(dealing, dealer, update_D, os.urandom)
    proofs = proved(dealing, update_D, AGREEMENT, os.urandom)
    boxes = dict.fromkeys(dealing.members, rows_NB[0])
    bits = dict.fromkeys(dealing.members, proofs[0])
    shares = dict.fromkeys(dealing.members, shares_of(dealing, rows_NB[0]))
    weights = {site: 1 + place for place, site in enumerate(dealing.members)}
    answers_HL = _sums_of_one(dealing, rows_NB)
    places, bound = list(range(len(dealing.members))), int(np.abs(update_D).max())
    return {
        "shares: deal": lambda: dealt(dealing, dealer, update_D, os.urandom),
        "shares: prove": lambda: proved(dealing, update_D, AGREEMENT, os.urandom),
        "shares: answer products": lambda: products(dealing, boxes, bits, AGREEMENT, CHALLENGE),
        "shares: answer the sum": lambda: sums(dealing, shares, weights),
        "shares: server, the sum": lambda: summed(
            dealing.packing, dealing.length, bound, places, answers_HL, os.urandom
        ),
    }


def _shared(masked: SessionDescriptor) -> tuple[Dealing, Integers]:
    n, d = masked.num_sites, masked.num_coordinates
    reserves = Reserves(-(-n // 5), -(-n // 20), n // 10)
    packing = widest_packing(n, reserves)
    scale = finest_shared_scale(masked.clip_norm, d, packing)
    described = replace(
        masked,
        mode=Mode.SHARES,
        strict=True,
        scale=scale,
        packing=packing,
        privacy_threshold=reserves.privacy_threshold,
        wrong_holders=reserves.wrong_holders,
        dropouts=reserves.dropouts,
    )
    drawn_D = np.random.default_rng(0).normal(size=d)
    update_D = np.rint(drawn_D * (0.9 * scale * masked.clip_norm / math.sqrt(d))).astype(np.int64)
    return dealing_of(described, described.participants), update_D


def _sums_of_one(dealing: Dealing, rows_NB: Elements) -> Elements:
    """What the holders would answer, were one site alone in the sum."""
    return rows_NB[:, : dealing.columns].copy()
