"""The state of a secure sum at the server, whatever its protection."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import TypeAlias

from ..errors import StaleRound
from ..privacy.secagg.collect import SumCollection
from ..privacy.secagg.collect_groups import GroupCollection
from ..privacy.secagg.descriptor import Mode, SessionDescriptor
from ..privacy.secagg.judging import Judged
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.sharing_collect import SharingCollection
from ..privacy.secrets import Secret

SumState: TypeAlias = SumCollection | GroupCollection | SharingCollection
# Which of the sites judged are to be in the sum, of shares also how often; asked only where there are distances.
Choose: TypeAlias = Callable[[SessionDescriptor, Judged], Collection[bytes]]


def new_state(session: SessionDescriptor, roster: Roster, secret: Secret, choose: Choose) -> SumState:
    """A session in which nobody has said anything.

    Raises:
        ConfigError: a participant is not in the roster.
    """
    match session.mode:
        case Mode.GROUPS:
            return GroupCollection(session, roster)
        case Mode.SKETCH | Mode.SHARES:
            return SharingCollection(session, roster, secret, lambda judged: choose(session, judged))
        case _:
            return SumCollection(session, roster)


def as_it_is(state: SumState) -> SumState:
    """The state as it is now: no message that comes later changes it, whatever thread reads it."""
    now = copy.copy(state)
    match now:
        case SumCollection():
            now.unmask = dict(now.unmask)
        case GroupCollection():
            now.groups, now.lost = tuple(map(_sum_as_it_is, now.groups)), dict(now.lost)
        case SharingCollection():
            now.masks, now.sums = _sum_as_it_is(now.masks), dict(now.sums)
    return now


def _sum_as_it_is(state: SumCollection) -> SumCollection:
    now = copy.copy(state)
    now.unmask = dict(now.unmask)
    return now


def masked_in(state: SumState) -> frozenset[bytes]:
    """The ids of the sites whose updates have come, masked or in shares."""
    return state.came if isinstance(state, SharingCollection) else frozenset(state.masked)


def shares_updates(state: SumState) -> bool:
    """Whether sites send no masked words, but sealed shares of their updates for each other."""
    return state.descriptor.mode is Mode.SHARES


def bytes_expected(state: SumState, site: bytes) -> int:
    """How long the file is in which a site's update leaves: its masked words, or its sealed shares.

    Raises:
        StaleRound: shares are not dealt yet, or without this site.
    """
    if isinstance(state, SharingCollection) and shares_updates(state):
        if site not in state.survivors:
            raise StaleRound("the updates are shared without this site")
        return state.deal_bytes(site)
    return state.descriptor.num_words * state.descriptor.ring.word_bytes


def is_of(state: SumState, sid: bytes) -> bool:
    """Whether a message with this session id belongs here."""
    if isinstance(state, GroupCollection):
        return any(group.descriptor.sid == sid for group in state.groups)
    return state.descriptor.sid == sid
