"""A site's update on its way out: whole numbers, noise on them, then masks.

Shape suffixes: D words.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InvalidUpdate
from ..secrets import Secret
from .checks import session_graph
from .codes import AbortCode, Refusal
from .descriptor import Mode, SessionDescriptor
from .keys import loaded, pair_mask, self_mask
from .member import Member
from .messages import Keys
from .noise import add_noise
from .prg import Words, fold
from .quantise import quantise, whole_numbers
from .signing import Kind, sign
from .state import Sharing, SiteState, Stage, Step


def mask(
    state: SiteState,
    update_D: npt.NDArray[np.float32] | npt.NDArray[np.int64],
    member: Member,
    *,
    weight: int | None = None,
) -> Step:
    """Quantise and mask this site's update; the answer is a Masked message, and words to send with it.

    May be called again after a restart, with the same update: the words are made again from the stored seeds.

    Args:
        state: after a delivery.
        update_D: float32, the difference from the model received; int64 where the session sums whole numbers.
        member: this site.
        weight: a whole number from 1 to 1024 where the session is weighted.

    Raises:
        InvalidUpdate: the update cannot be used, or is not the one that was masked before. The state stays good.
    """
    session, sid = state.descriptor, state.descriptor.sid
    if state.stage not in (Stage.DELIVERED, Stage.MASKED):
        refusal = Refusal(AbortCode.BAD_MESSAGE, f"nothing is to be masked after {state.stage.name.lower()}")
        return Step(state, refusal=state.refusal or refusal)
    if len(update_D) != session.num_coordinates:
        raise InvalidUpdate(f"the update has {len(update_D)} coordinates, expected {session.num_coordinates}")
    if (weight is not None) != session.weighted:
        raise InvalidUpdate(f"the weight is {weight}, and the session is {'' if session.weighted else 'not '}weighted")
    words_D = plain_words(session, update_D, state.rounding, weight)
    sharing = Sharing(update_digest(words_D)) if session.mode is Mode.SKETCH else None
    plus, minus = _mask_seeds(state)
    fold(words_D, add=plus, subtract=minus, suite=session.suite)
    digest = hashlib.sha256(words_D.data).digest()
    if state.masked is not None:
        if digest != state.masked_digest:
            raise InvalidUpdate("the update is not the one that was masked before; this round goes on without it")
        return Step(state, state.masked.to_bytes(), words_D)
    masked = sign(member.key, Kind.MASKED, sid, digest)
    after = replace(state, stage=Stage.MASKED, masked_digest=digest, masked=masked, sharing=sharing)
    return Step(after, masked.to_bytes(), words_D)


def plain_words(
    session: SessionDescriptor,
    update_D: npt.NDArray[Any],
    seed: Secret,
    weight: int | None = None,
) -> Words:
    """What this site puts into the sum: whole numbers, with its noise where the session has any.

    The rounding and the noise follow from ``seed`` alone.

    Raises:
        InvalidUpdate: as ``quantise`` and ``whole_numbers``.
    """
    if session.whole:
        words_D = whole_numbers(update_D, largest=math.floor(session.clip_norm), ring=session.ring)
    else:
        words_D = quantise(
            update_D,
            scale=session.scale,
            clip_norm=session.clip_norm,
            ring=session.ring,
            seed=seed,
            weight=weight,
        )
    add_noise(words_D, session, seed)
    return words_D


def update_digest(words_D: Words) -> Secret:
    """By which a site knows its update again: SHA-256 of its whole numbers."""
    return Secret(hashlib.sha256(words_D.data).digest())


def _mask_seeds(state: SiteState) -> tuple[list[Secret], list[Secret]]:
    """Seeds of the masks that this site adds, its own first, and of those that it subtracts, as the later of a pair."""
    sid, dealers = state.descriptor.sid, set(state.dealers)
    bodies = {message.sender: Keys.from_bytes(message.body) for message in state.keys}
    plus = [self_mask(sid, state.seed, state.site)]
    minus: list[Secret] = []
    mask_key = loaded(state.mask_key)
    for other in session_graph(state.descriptor, state.keys).neighbours(state.site):
        if other in dealers:
            seed = pair_mask(sid, mask_key, bodies[other].mask_key, state.site, other)
            (plus if state.site < other else minus).append(seed)
    return plus, minus
