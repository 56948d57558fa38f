"""What happens, as it happens: to the log, and to whoever watches a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..clock import Clock
from ..logs import log_event

log = logging.getLogger(__name__)

MAX_BEHIND = 1000


@dataclass(frozen=True, slots=True)
class Happening:
    """One event, named in the past tense."""

    unix_seconds: float
    name: str
    run: str = ""
    round: int = 0
    site: str = ""
    detail: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


class Feed:
    """Publishes to any number of watchers; a watcher that falls far behind misses the oldest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: set[asyncio.Queue[Happening | None]] = set()

    def publish(
        self,
        name: str,
        *,
        run: str = "",
        round: int = 0,
        site: str = "",
        detail: str = "",
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Log an event and hand it to every watcher."""
        happening = Happening(self._clock.now(), name, run, round, site, detail, dict(metrics or {}))
        fields: dict[str, Any] = {"run": run, "round": round, "site": site, "detail": detail, "metrics": metrics}
        log_event(log, name, **{key: value for key, value in fields.items() if value})
        for queue in self._watchers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(happening)

    async def watch(self) -> AsyncGenerator[Happening, None]:
        """Events from now on, until the feed closes."""
        queue: asyncio.Queue[Happening | None] = asyncio.Queue(MAX_BEHIND)
        self._watchers.add(queue)
        try:
            while (happening := await queue.get()) is not None:
                yield happening
        finally:
            self._watchers.discard(queue)

    def close(self) -> None:
        """End every watch."""
        for queue in self._watchers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)
