"""A site: one home folder, one line to the server, until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..clock import SystemClock
from ..configuration import load
from ..errors import StoreError
from ..files import write
from ..logs import log_event
from .config import SiteConfig
from .home import SiteHome
from .loading import InstalledTask, load_tasks
from .outbox import Outbox
from .policy import Policy
from .session import Line
from .sum_store import SumStore

log = logging.getLogger(__name__)

STATUS_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Site:
    """A site that has joined a federation.

    ``Site.from_home("st-anna").run()`` is what ``foedus site up`` does.
    """

    home: SiteHome
    config: SiteConfig
    tasks: dict[str, InstalledTask]

    @staticmethod
    def from_home(folder: str | Path) -> Site:
        """Read ``site.toml`` and ``policy.toml`` and import the tasks.

        Raises:
            ConfigError: a file is missing or malformed, or a task cannot be loaded.
        """
        home = SiteHome(Path(folder))
        home.credentials()
        config = load(SiteConfig, home.config)
        load(Policy, home.policy)
        home.create()
        return Site(home, config, load_tasks(config.tasks, home.path))

    def run(self) -> None:
        """Take part until SIGTERM or SIGINT; what is under way is taken up again by the next run.

        Raises:
            StoreError: another process runs this site, or its disk fails.
            VersionMismatch, CertificateExpired, AccessDenied: the server will not have this site.
        """
        asyncio.run(self._until_signalled())

    async def serve(self) -> None:
        """Take part until cancelled; for programs with an event loop of their own."""
        outbox = Outbox.open(self.home.outbox, SystemClock())
        sums = SumStore.open(self.home.sums)
        line = Line(self.config.name, self.config.server, self.home, self.tasks, outbox, sums, self.config.records)
        reporter = asyncio.create_task(self._report(line))
        try:
            await line.serve()
        finally:
            reporter.cancel()
            # What ended the site is the error to be seen, not that this could not be told as well.
            with suppress(StoreError):
                self._write_status(line, running=False)
            sums.close()
            outbox.close()

    async def _until_signalled(self) -> None:
        serving = asyncio.create_task(self.serve())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        # Only a cancellation that a signal asked for is a good end.
        if not (serving.cancelled() and serving.cancelling()):
            serving.result()

    async def _report(self, line: Line) -> None:
        told = False
        while True:
            try:
                self._write_status(line, running=True)
                told = False
            except StoreError as error:
                if not told:
                    log_event(log, "status_not_written", logging.WARNING, reason=str(error))
                told = True
            await asyncio.sleep(STATUS_SECONDS)

    def _write_status(self, line: Line, *, running: bool) -> None:
        status: dict[str, Any] = {
            "unix_seconds": time.time(),
            "running": running,
            "connected": line.connected.is_set(),
            "working_on": str(line.desk.current) if line.desk.current else None,
            "progress": line.desk.progress,
            "waiting_updates": len(line.outbox.pending()),
            "last_rejected": line.desk.last_rejected or None,
        }
        write(self.home.status, json.dumps(status), durable=False)
