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

    def moved(self, site: str, work: Work, progress: int) -> None:
        """A site's work has moved."""
        if work in self._open:
            self._open[work].moved(site, progress, self._clock.monotonic())

    def alive(self, site: str, work: Work) -> None:
        """Bytes to or from a site have moved for its work."""
        if work in self._open:
            self._open[work].alive(site, self._clock.monotonic())

    def settle(self, site: str, work: Work, *, accepted: bool) -> None:
        """A site's answer is recorded; it counts or it does not."""
        if work in self._open:
            self._open[work].settle(site, accepted=accepted)
            self._news[work].set()

    def progress(self, work: Work) -> dict[str, int]:
        """The progress of each site in an open collection."""
        collection = self._open.get(work)
        return dict(collection.progress) if collection else {}
