"""From the last answers to the sum of the selected updates, and whether it is the sum of what was judged.

Shape suffixes: H holders who answered, L values of what was shared, D coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

import numpy as np

from ...errors import InvalidUpdate
from ..sharing.field import Integers
from ..sharing.sketches import PLAUSIBLE, agree
from ..sharing.sums import summed
from .checks import require_enough
from .codes import AbortCode, abort
from .descriptor import Mode
from .keys import derive
from .opening import Opening, SecureSum, add_up, open_sum
from .prg import Words, stream
from .sharing_collect import SharingCollection
from .sketch_terms import bound_of, shift_of
from .sketching import sketch_of


def open_selected(collection: SharingCollection) -> Opening:
    """The masks that are left in the sum of the selected updates; as ``open_sum``, with the same exceptions."""
    return open_sum(collection.masks)


def add_up_selected(collection: SharingCollection, opening: Opening, rows: Iterable[tuple[bytes, Words]]) -> SecureSum:
    """The sum of the selected updates, exactly, once it is certain that they are the ones whose sketches were judged.

    Args:
        collection: in its last phase.
        opening: from ``open_selected``.
        rows: each selected site's words, once, in any order; read one at a time.

    Raises:
        SecureSumFailed: "too-few" answers; "undecodable": too many holders lie; "sketch-mismatch": a selected site has
            masked another update than it has had judged. The round is spent; which of them it was, nobody can tell.
            As ``add_up`` besides.
    """
    sketched_L, liars = _sum_of_vectors(collection, isqrt(PLAUSIBLE))
    found = add_up(collection.descriptor, opening, rows)
    session, count = collection.descriptor, len(opening.survivors)
    words_D = found.sum_D.view(session.ring.unsigned)
    if not agree(sketch_of(session, collection.view, words_D), sketched_L, shift_of(session), count):
        raise _mismatch(count)
    return SecureSum(
        found.sum_D, found.total_weight, found.scale, found.survivors, tuple(sorted({*found.liars, *liars}))
    )


def add_up_shares(collection: SharingCollection) -> SecureSum:
    """The weighted sum of the selected updates, exactly, in a session of shares: ``sum_D`` is int64.

    Args:
        collection: in its last phase.

    Raises:
        SecureSumFailed: "too-few" answers; "undecodable": too many holders lie. The round is spent.
    """
    session, weights = collection.descriptor, collection.weights
    sum_D, liars = _sum_of_vectors(collection, bound_of(session))
    return SecureSum(sum_D, sum(weights.values()), session.scale, collection.selected, tuple(sorted(liars)))


def _sum_of_vectors(collection: SharingCollection, bound: int) -> tuple[Integers, list[bytes]]:
    """The weighted sum of what the selected have shared, none longer than ``bound``; and who answered falsely."""
    session, judged = collection.descriptor, collection.judged
    if judged is None:
        raise ValueError("nothing was selected yet")
    dealing = collection.dealing
    holders = [holder for holder in judged.holders if holder in collection.sums]
    require_enough(len(holders), judged.packing.answers_needed, "sites have answered for the sum")
    count = len(collection.selected)
    try:
        found = summed(
            judged.packing,
            dealing.length,
            sum(collection.weights.values()) * bound,
            dealing.places(holders),
            np.stack([collection.sums[holder] for holder in holders]),
            stream(derive(session.sid, collection.secret, "server/sums")),
        )
    except InvalidUpdate as error:
        if session.mode is Mode.SHARES:  # of updates that were proved short; so the answers were forged together
            raise abort(AbortCode.UNDECODABLE, str(error)) from None
        raise _mismatch(count) from None
    if found is None:
        raise abort(AbortCode.UNDECODABLE, f"more than {judged.packing.liars} sites have answered falsely for the sum")
    return found.sum_D, [dealing.members[place] for place in found.liars]


def _mismatch(count: int) -> Exception:
    reason = f"the sum of {count} updates is not that of the sketches that were judged; the round is lost"
    return abort(AbortCode.SKETCH_MISMATCH, reason)
