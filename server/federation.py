"""Everything the server's parts share: built once at start, passed to whoever needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ..aggregators.workers import Threads, Workers
from ..clock import Clock
from ..layout import Layout
from ..modelfile import ModelFile
from .blobs import Blobs, Inbox
from .collector import Collector
from .config import ServerConfig
from .feed import Feed
from .participation_records import ParticipationRecords
from .query_records import QueryRecords
from .registry import Registry
from .rosters import Rosters
from .round_records import RoundRecords
from .run_records import RunRecords
from .sessions import Sessions
from .sums import Sums
from .telemetry import Metrics


def _nothing_to_hold(_run: str, _reason: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class Federation:
    """The server's state: what is recorded (runs, rounds, participations, queries, registry, blobs,
    inbox) and what is live.

    ``workers`` compute the blocks of an aggregation.

    ``hold`` pauses a run because the server itself cannot go on with it (a full disk). ``held`` are
    the runs, with the reason, for which not even that could be recorded; a restart takes them up.
    """

    config: ServerConfig
    clock: Clock
    runs: RunRecords
    rounds: RoundRecords
    participations: ParticipationRecords
    queries: QueryRecords
    registry: Registry
    rosters: Rosters
    blobs: Blobs
    inbox: Inbox
    sessions: Sessions
    collector: Collector
    feed: Feed
    metrics: Metrics
    sums: Sums
    workers: Workers = field(default_factory=Threads)
    hold: Callable[[str, str], None] = field(default=_nothing_to_hold)
    held: dict[str, str] = field(default_factory=dict)

    def layout(self, model_sha256: str) -> Layout:
        """The layout of a stored model."""
        return _layout(self.blobs.path(model_sha256))

    def available(self, task: str) -> list[str]:
        """Sites that are connected and offer a task."""
        return self.sessions.offering(task)


@lru_cache(maxsize=64)
def _layout(path: Path) -> Layout:
    return ModelFile.open(path).layout
