"""The server's half of a session over groups: a collection for each group, closed together, lost one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...errors import SecureSumFailed
from .codes import AbortCode, Refusal, abort, refusal_of
from .collect import Phase, SumCollection, offered
from .descriptor import Mode, SessionDescriptor
from .encoding import DIGEST_BYTES
from .grouping import fewest_groups
from .groups import group_sessions
from .roster import Roster


@dataclass(slots=True)
class GroupCollection:
    """One session over groups at the server, used as a ``SumCollection`` is.

    A group that has too few sites, or a bad dealer, is lost for this attempt; the others go on, while there are
    2f + 1 of them.

    Attributes:
        descriptor: the whole session.
        roster: of its sites.
        phase: of every group that is left.
        groups: every group's collection, in order.
        lost: why a group was given up, by its number.

    Raises:
        ConfigError: a participant is not in the roster.
    """

    descriptor: SessionDescriptor
    roster: Roster
    phase: Phase = Phase.KEYS
    groups: tuple[SumCollection, ...] = ()
    lost: dict[int, Refusal] = field(default_factory=dict)
    _places: dict[bytes, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        sessions = group_sessions(self.descriptor)
        self.groups = tuple(SumCollection(session, self.roster) for session in sessions)
        self._places = {session.sid: place for place, session in enumerate(sessions)}

    @property
    def left(self) -> Mapping[int, SumCollection]:
        """The groups that are not lost, by their numbers."""
        return {place: group for place, group in enumerate(self.groups) if place not in self.lost}

    @property
    def revealing(self) -> bool:
        """Whether sites of any group may have given shares away."""
        return self.phase is Phase.UNMASK

    @property
    def waiting(self) -> frozenset[bytes]:
        """The sites still expected in this phase."""
        return frozenset[bytes]().union(*(group.waiting for group in self.left.values()))

    @property
    def masked(self) -> frozenset[bytes]:
        """The sites whose masked words are to be kept for ``opening``."""
        return frozenset(site for group in self.left.values() for site in group.masked)

    def offer(self) -> bytes:
        """What every participant is sent first: the whole session. A site answers in its group's."""
        return offered(self.descriptor, self.roster)

    def receive(self, message: bytes, *, words_digest: bytes | None = None, num_bytes: int = 0) -> Refusal | None:
        """Take a message of a site, or say why it is refused; the others go on either way."""
        place = self._places.get(message[1 : 1 + DIGEST_BYTES])
        if place is None:
            return Refusal(AbortCode.BAD_MESSAGE, "the message is of no group's session")
        if place in self.lost:
            return Refusal(AbortCode.LATE, f"the round goes on without group {place}: {self.lost[place].reason}")
        return self.groups[place].receive(message, words_digest=words_digest, num_bytes=num_bytes)

    def close(self) -> Mapping[bytes, bytes]:
        """End the phase in every group: what each site that is still in the session is sent next.

        Raises:
            SecureSumFailed: "too-few" groups are left; sites that are to blame for lost ones are named.
        """
        messages: dict[bytes, bytes] = {}
        for place, group in self.left.items():
            try:
                messages |= group.close()
            except SecureSumFailed as error:
                self.lost[place] = refusal_of(error)
        require_groups(self.descriptor, self.left, self.lost)
        self.phase = next(iter(self.left.values())).phase
        return messages


def require_groups(session: SessionDescriptor, left: Collection[int], lost: Mapping[int, Refusal]) -> None:
    """Raise SecureSumFailed("too-few") for fewer than 2f + 1 groups, naming the sites to blame for those lost."""
    needed = fewest_groups(session.byzantine)
    if len(left) < needed:
        place, first = next(iter(lost.items()))
        reason = f"{len(left)} of {len(left) + len(lost)} groups are left, expected at least {needed}"
        blamed = sorted(site for refusal in lost.values() for site in refusal.blamed)
        raise abort(AbortCode.TOO_FEW, f"{reason}; group {place} was given up first: {first.reason}", blamed)


def collection_of(descriptor: SessionDescriptor, roster: Roster) -> SumCollection | GroupCollection:
    """The server's half of a session, whatever its mode.

    Raises:
        ConfigError: a participant is not in the roster.
    """
    return (GroupCollection if descriptor.mode is Mode.GROUPS else SumCollection)(descriptor, roster)
