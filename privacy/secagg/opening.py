"""From the shares revealed to the sum: which masks are left in it, and taking them off.

Shape suffixes: D coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

import numpy as np
import numpy.typing as npt

from ..secrets import Secret
from .codes import AbortCode, abort
from .collect import SumCollection
from .descriptor import SessionDescriptor
from .keys import commitment, loaded, pair_mask, public_key, self_mask
from .messages import Keys
from .prg import Words, fold
from .recovery import recover, surely_none


@dataclass(frozen=True, slots=True)
class Opening:
    """The masks that are left in the sum of the masked updates.

    Attributes:
        survivors: the sites in the sum, sorted.
        plus: seeds of masks that are in the sum.
        minus: seeds of masks that were subtracted in it.
        liars: holders that for certain revealed a wrong share of somebody.
    """

    survivors: tuple[bytes, ...]
    plus: tuple[Secret, ...]
    minus: tuple[Secret, ...]
    liars: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SecureSum:
    """What a session gives.

    Attributes:
        sum_D: the sum of the quantised updates, whole numbers around 0 (int16, int32 or int64).
        total_weight: the sum of the weights; the number of survivors where the session is not weighted.
        scale: steps per unit.
        survivors: the sites in it, sorted.
        liars: holders that revealed a wrong share.
    """

    sum_D: npt.NDArray[np.signedinteger[Any]]
    total_weight: int
    scale: float
    survivors: tuple[bytes, ...]
    liars: tuple[bytes, ...]

    def mean_D(self) -> npt.NDArray[np.float32]:  # noqa: N802 (it carries its shape)
        """The weighted mean of the updates, float32."""
        return (self.sum_D / (self.scale * self.total_weight)).astype(np.float32)


def open_sum(collection: SumCollection) -> Opening:
    """Recover the seed of every survivor and the mask key of every dealer that dropped out.

    Raises:
        SecureSumFailed: "too-few" shares of somebody; "bad-dealer": no shares of a site give the secret that it
            has published a commitment or a public key of. It is blamed where c lying holders cannot be the cause.
    """
    sid = collection.descriptor.sid
    bodies = {site: Keys.from_bytes(message.body) for site, message in collection.keys.items()}
    survivors, revealed = set(collection.masked), _revealed(collection)
    plus: list[Secret] = []
    minus: list[Secret] = []
    liars: set[bytes] = set()
    for owner in sorted(collection.shares):
        partners = [site for site in collection.graph.neighbours(owner) if site in survivors]
        if owner in survivors:
            seed = _recovered(collection, owner, bodies[owner], revealed[owner], liars)
            plus.append(self_mask(sid, seed, owner))
        elif partners:
            key = loaded(_recovered(collection, owner, bodies[owner], revealed[owner], liars))
            for partner in partners:
                mask = pair_mask(sid, key, bodies[partner].mask_key, owner, partner)
                (plus if partner < owner else minus).append(mask)
    return Opening(tuple(sorted(survivors)), tuple(plus), tuple(minus), tuple(sorted(liars)))


def _revealed(collection: SumCollection) -> dict[bytes, dict[bytes, Secret]]:
    """The shares of each dealer, by holder."""
    found: dict[bytes, dict[bytes, Secret]] = {dealer: {} for dealer in collection.shares}
    for holder, unmask in collection.unmask.items():
        for item in unmask.shares:
            found[item.owner][holder] = item.share
    return found


def _recovered(
    collection: SumCollection, owner: bytes, keys: Keys, shares: Mapping[bytes, Secret], liars: set[bytes]
) -> Secret:
    sid, holders = collection.descriptor.sid, collection.graph.holders(owner)
    given = {x: shares[holder] for x, holder in enumerate(holders, 1) if holder in shares}
    if len(given) < collection.threshold:
        reason = f"{len(given)} shares of site {owner.hex()} were revealed, expected at least {collection.threshold}"
        raise abort(AbortCode.TOO_FEW, reason)

    def is_right(secret: Secret) -> bool:
        if owner in collection.masked:
            return compare_digest(commitment(sid, owner, secret), keys.commitment)
        return compare_digest(public_key(secret), keys.mask_key)

    distrusted = frozenset(x for x, holder in enumerate(holders, 1) if holder in liars)
    colluders = collection.descriptor.colluders
    found = recover(given, collection.threshold, is_right, colluders=colluders, distrusted=distrusted)
    if found is None:
        reason = f"the shares of site {owner.hex()} do not give the secret that it has published"
        sure = surely_none(len(given), collection.threshold, colluders)
        raise abort(AbortCode.BAD_DEALER, reason, [owner] if sure else [])
    secret, wrong = found
    liars |= {holders[x - 1] for x in wrong}
    return secret


def add_up(session: SessionDescriptor, opening: Opening, rows: Iterable[tuple[bytes, Words]]) -> SecureSum:
    """Sum the survivors' masked words and take the masks off; exactly the sum of what the sites quantised.

    Args:
        session: the session.
        opening: from ``open_sum``.
        rows: each survivor's words, once, in any order; read one at a time.

    Raises:
        SecureSumFailed: "bad-list": the rows are not those of the survivors.
    """
    total_D = np.zeros(session.num_words, session.ring.unsigned)
    seen = []
    for site, words_D in rows:
        if words_D.dtype != total_D.dtype or words_D.shape != total_D.shape:
            raise abort(AbortCode.BAD_LIST, f"a masked row is {words_D.dtype} of shape {words_D.shape}", [site])
        np.add(total_D, words_D, out=total_D)
        seen.append(site)
    if sorted(seen) != list(opening.survivors):
        raise abort(AbortCode.BAD_LIST, f"{len(seen)} masked rows are not those of the survivors, each once")
    fold(total_D, add=opening.minus, subtract=opening.plus, suite=session.suite)
    sum_D = total_D.view(session.ring.signed)
    weight = int(sum_D[-1]) if session.weighted else len(seen)
    return SecureSum(sum_D[: session.num_coordinates], weight, session.scale, opening.survivors, opening.liars)
