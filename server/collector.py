"""The collections that are open, and the waiting for them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..clock import Clock
from ..protos.messages import Work
from .collection import Collection, Decision, State


class Collector:
    """Services deliver what sites send; coordinators await the decision."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Work, Collection] = {}
        self._news: dict[Work, asyncio.Event] = {}
        self._progress: dict[str, int] = {}

    async def collect(self, work: Work, collection: Collection) -> Decision:
        """Wait until the collection is over."""
        self._open[work] = collection
        self._news[work] = asyncio.Event()
        try:
            while True:
                decision = collection.decide(self._clock.monotonic())
                if decision.state is not State.OPEN:
                    return decision
                self._news[work].clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, decision.wait_until - self._clock.monotonic())):
                        await self._news[work].wait()
        finally:
            del self._open[work], self._news[work]

    def moved(self, site: str, progress: int) -> None:
        """A site reported progress; only growth counts as life. A site that was restarted counts from 0 again."""
        grown = progress > self._progress.get(site, -1)
        self._progress[site] = progress
        if grown:
            self.alive(site)

    def alive(self, site: str) -> None:
        """Something of a site has moved: a sign of life in all it was asked for, since it does one thing at a time."""
        for collection in self._open.values():
            collection.alive(site, self._clock.monotonic())

    def settle(self, site: str, work: Work, *, accepted: bool) -> None:
        """A site's answer is recorded; it counts or it does not."""
        if work in self._open:
            self._open[work].settle(site, accepted=accepted)
            self._news[work].set()
