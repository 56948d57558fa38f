"""The sites that are connected right now, and the line to each of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ..protos.messages import Hello, ServerMessage, Work

MAX_QUEUED = 256


@dataclass(slots=True, eq=False)
class LiveSession:
    """One site's open session. ``outgoing`` is drained by its stream; None in it ends the stream."""

    site: str
    hello: Hello
    since: float
    last_seen: float
    working_on: Work | None = None
    outgoing: asyncio.Queue[ServerMessage | None] = field(default_factory=lambda: asyncio.Queue(MAX_QUEUED))
    closing: str = ""

    def send(self, message: ServerMessage) -> None:
        """Queue a message; a site that lets too many pile up is cut off and must reconnect."""
        try:
            self.outgoing.put_nowait(message)
        except asyncio.QueueFull:
            self.end("the site does not read its messages")

    def end(self, reason: str) -> None:
        """Close the stream after what is queued."""
        self.closing = self.closing or reason
        if self.outgoing.full():
            self.outgoing.get_nowait()
        self.outgoing.put_nowait(None)


class Sessions:
    """At most one live session per site: a newer one replaces the older."""

    def __init__(self) -> None:
        self._live: dict[str, LiveSession] = {}
        self._changed = asyncio.Event()

    def open(self, session: LiveSession) -> None:
        """Register a session and end the one it replaces."""
        previous = self._live.get(session.site)
        self._live[session.site] = session
        if previous is not None:
            previous.end("replaced by a newer session of the same site")
        self._announce_change()

    def close(self, session: LiveSession) -> None:
        """Forget a session, unless a newer one has taken its place."""
        if self._live.get(session.site) is session:
            del self._live[session.site]
            self._announce_change()

    def get(self, site: str) -> LiveSession | None:
        """A site's live session."""
        return self._live.get(site)

    def offering(self, task: str) -> list[str]:
        """Connected sites that can do a task, by name; one whose stream is about to end would not hear of it."""
        return sorted(
            s.site for s in self._live.values() if not s.closing and any(offer.name == task for offer in s.hello.tasks)
        )

    def send(self, site: str, message: ServerMessage) -> None:
        """Send to a site if it is connected; if not, it hears when it connects again."""
        session = self._live.get(site)
        if session is not None:
            session.send(message)

    def end_all(self, reason: str) -> None:
        """End every session."""
        for session in list(self._live.values()):
            session.end(reason)

    def __len__(self) -> int:
        return len(self._live)

    async def change(self) -> None:
        """Wait until a session opens or closes."""
        await self._changed.wait()

    def _announce_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
