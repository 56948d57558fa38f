"""A piece of work on the desk, and how it is called off."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from ..protos.config_digest import training_sha256
from ..protos.messages import Assignment, Work
from .backoff import Backoff


class Interrupted(Exception):
    """Raised where work goes on that was called off, in a task's training too; its checkpoint stays."""


@dataclass(slots=True, eq=False)
class Job:
    """A piece of work on the desk."""

    assignment: Assignment
    stop: threading.Event = field(default_factory=threading.Event)
    called_off: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: bool = False  # off the desk, until its update is delivered
    times_asked: int = 1
    order_sha256: str = field(init=False)

    def __post_init__(self) -> None:
        self.order_sha256 = training_sha256(self.assignment)

    def call_off(self) -> None:
        """Stop it, wherever it is: in the task's thread or waiting here."""
        self.stop.set()
        self.called_off.set()

    async def pause(self, backoff: Backoff) -> None:
        """Wait before the next attempt, unless it is called off."""
        with suppress(TimeoutError):
            async with asyncio.timeout(backoff.next_seconds()):
                await self.called_off.wait()

    @property
    def work(self) -> Work:
        """Which one."""
        return self.assignment.work
