"""One collection, as pure state: who was asked, who has answered, and whether it is over.

Events in (asked, progress, settled, the passing of time), a decision out; no sockets, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto


class State(Enum):
    """What a collection has come to."""

    OPEN = auto()
    MET = auto()
    MISSED = auto()


@dataclass(frozen=True, slots=True)
class Decision:
    """``wait_until`` is when an open collection must be looked at again, in monotonic seconds."""

    state: State
    silent: frozenset[str]
    wait_until: float = float("inf")


@dataclass(slots=True)
class Collection:
    """Collects from a cohort until ``target`` accepted answers, or until everybody still open is silent.

    Progress is life: a site is silent once nothing of it has moved for ``deadline_seconds``, and
    whatever it says once the time is ``ends``. An ended collection is met if at least ``quorum``
    answers were accepted. It does not close before that of the site ``indispensable`` is, if there is such
    a site, and is missed once that cannot come.
    """

    target: int
    quorum: int
    deadline_seconds: float
    ends: float = float("inf")
    indispensable: str | None = None
    accepted: set[str] = field(default_factory=set)
    _last_life: dict[str, float] = field(default_factory=dict)

    def ask(self, sites: Iterable[str], now: float) -> None:
        """Sites have been asked."""
        for site in sites:
            self._last_life[site] = now

    @property
    def open_sites(self) -> frozenset[str]:
        """Sites asked that have not settled."""
        return frozenset(self._last_life)

    def alive(self, site: str, now: float) -> None:
        """Something of a site has moved."""
        if site in self._last_life:
            self._last_life[site] = now

    def settle(self, site: str, *, accepted: bool) -> None:
        """A site's answer was accepted, or it is out of this collection."""
        self._last_life.pop(site, None)
        if accepted:
            self.accepted.add(site)

    def decide(self, now: float) -> Decision:
        """Whether the collection is over at time ``now``."""
        silent = frozenset(
            site for site, life in self._last_life.items() if now - life >= self.deadline_seconds or now >= self.ends
        )
        waiting = len(self._last_life) - len(silent)
        count = len(self.accepted)
        lacking = self.indispensable is not None and self.indispensable not in self.accepted
        if lacking and self.indispensable not in self._last_life.keys() - silent:
            return Decision(State.MISSED, silent)
        if (count >= self.target and not lacking) or waiting == 0:
            return Decision(State.MET if count >= self.quorum else State.MISSED, silent)
        if count + waiting < self.quorum:
            return Decision(State.MISSED, silent)
        oldest = min(life for site, life in self._last_life.items() if site not in silent)
        return Decision(State.OPEN, silent, min(oldest + self.deadline_seconds, self.ends))
