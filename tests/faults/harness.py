"""A federation of real processes that can be held, cut, stopped and killed; waiting is always for a condition."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from foedus.client_sdk.loading import load_task
from foedus.errors import FoedusError
from foedus.layout import Role
from foedus.modelfile import ModelFile
from foedus.plan import Cohort, LocalTraining, Plan
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask
from foedus.simulations.local import LocalFederation

HERE = Path(__file__).parent
TOY = f"{HERE / 'toy.py'}:make"
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02

T = TypeVar("T")


class Trial:
    """A federation under one folder, with a gate for everything that a site does.

    Args:
        folder: an empty folder.
        settings: further lines of ``server.toml``.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.toy = folder / "toy"
        self.toy.mkdir()
        settings = {"heartbeat_seconds": 0.2, "drain_seconds": 5.0, **settings}
        self.fed = LocalFederation(folder, name="trial", settings=settings)
        self.task: dict[str, Any] = {}
        self._open = ExitStack()
        self._open.enter_context(self.fed)
        self._open.callback(self._kill_all)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _kill_all(self) -> None:
        for process in self.fed.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()

    @property
    def command(self) -> list[str]:
        """The command line's beginning."""
        return [sys.executable, "-m", "foedus"]

    # Sites

    def add(self, site: str, value: float = 1.0, *, port: int | None = None, start: bool = True, **task: Any) -> None:
        """Enrol a site that adds ``value``; with ``port``, it dials that instead of the server."""
        self.task = {"value": value, "folder": str(self.toy), "site": site, **task}
        home = self.fed.add_site(site, TOY, self.task)
        if port is not None:
            home.config.write_text(home.config.read_text().replace(f":{self.fed.port}", f":{port}"))
        if start:
            self.start(site)

    def start(self, *sites: str) -> None:
        """Start sites, each a process that comes back quickly after a failure."""
        for site in sites:
            self.spawn(site, [sys.executable, str(HERE / "eager_sites.py"), str(self.folder / site)])

    def spawn(self, name: str, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process that ends with the trial; its log is ``NAME.log``."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, **{"stdin": subprocess.DEVNULL, **options})
        self.fed.processes[name] = process
        return process

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the server or a site."""
        os.kill(self.fed.processes[name].pid, number)

    # Gates

    def hold(self, kind: str, site: str = "") -> None:
        """Let training or evaluation wait after each step, everywhere or at one site."""
        self._gate(kind, site).touch()

    def let_go(self, kind: str, site: str = "") -> None:
        """Open the gate again."""
        self._gate(kind, site).unlink()

    def _gate(self, kind: str, site: str) -> Path:
        return self.toy / ("-".join(filter(None, ("hold", kind, site))))

    def journal(self) -> list[str]:
        """What the sites have done, in order: "SITE train ROUND", "SITE step ROUND STEP", "SITE evaluate"."""
        path = self.toy / "journal"
        return path.read_text().splitlines() if path.exists() else []

    # Runs

    def plan(self, rounds: int = 2, sites: int = 2, **fields: Any) -> Plan:
        """A plan for the toy task that waits for ``sites`` sites."""
        cohort = fields.pop("cohort", None) or Cohort(minimum=sites, deadline_seconds=60)
        return Plan(
            name="toy",
            task="toy",
            rounds=rounds,
            cohort=cohort,
            training=fields.pop("training", LocalTraining(steps=1)),
            **fields,
        )

    def submit(self, plan: Plan) -> str:
        """Start a run from the toy's initial model."""
        return self.fed.submit(plan, load_task(TOY, {**self.task, "folder": ""}, self.folder).initial(0))

    def change(self, run: str, action: str) -> operations_pb2.Run:
        """Pause, resume or stop a run."""
        request = operations_pb2.ChangeRunRequest(run=run, action=action)
        return ask(self.fed.operator, lambda stub: stub.ChangeRun(request))

    def change_site(self, site: str, action: str) -> operations_pb2.Site:
        """Approve, suspend or revoke a site."""
        request = operations_pb2.ChangeSiteRequest(name=site, action=action)
        return ask(self.fed.operator, lambda stub: stub.ChangeSite(request))

    def sites(self) -> dict[str, operations_pb2.Site]:
        """The members by name."""
        reply = ask(self.fed.operator, lambda stub: stub.ListSites(operations_pb2.ListSitesRequest()))
        return {site.name: site for site in reply.sites if site.role == "site"}

    def finished(self, run: str, seconds: float = PATIENCE_SECONDS) -> operations_pb2.Run:
        """Wait for the run's end, which must be a good one."""
        done = self.fed.wait(run, seconds=seconds)
        assert done.state == "finished", f"{done.state}: {done.reason}\n{self.fed.log('server')[-3000:]}"
        return done

    def ended(self, run: str) -> operations_pb2.Run:
        """Wait for the run's end, whatever it is."""
        return self.fed.wait(run, seconds=PATIENCE_SECONDS)

    def model(self, run: str) -> npt.NDArray[np.float32]:
        """The trainable values of a run's last model."""
        path = self.folder / "fetched.safetensors"
        self.fed.fetch(run, "last", path)
        return ModelFile.open(path).vector(Role.TRAINABLE)

    def initial_sha256(self, run: str) -> str:
        """The digest of a run's initial model, from the database: the server need not be there."""
        with closing(sqlite3.connect(self.folder / "server/state/foedus.db")) as db:
            return db.execute("SELECT initial_sha256 FROM runs WHERE id = ?", (run,)).fetchone()[0]

    def verdicts(self, run: str, round: int) -> dict[str, str]:
        """What became of each site's training in a round."""
        rounds = self.fed.show(run).rounds
        if len(rounds) < round:
            return defaultdict(str)
        shown = rounds[round - 1]
        return {part.site: part.verdict for part in shown.participations if part.phase == 1}

    # Waiting

    def until(
        self,
        condition: Callable[[], T],
        what: str,
        seconds: float = PATIENCE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> T:
        """Poll until ``condition`` is true; a server that does not answer makes it false."""
        deadline = time.monotonic() + seconds
        value: Any = None
        while time.monotonic() < deadline:
            with suppress(FoedusError, FileNotFoundError):
                if value := condition():
                    return value
            time.sleep(poll_seconds)
        logs = {name: self.fed.log(name)[-2500:] for name in self.fed.processes}
        raise AssertionError(f"not within {seconds} s: {what}\n" + "\n".join(f"== {n}\n{t}" for n, t in logs.items()))

    def journalled(self, line: str, times: int = 1) -> None:
        """Wait until the sites have written a line so many times."""
        self.until(lambda: self.journal().count(line) >= times, f"{times} times {line!r} in {self.journal()}")

    def connected(self, *sites: str) -> None:
        """Wait until sites are connected."""
        self.until(lambda: all(self.sites()[site].connected for site in sites), f"{sites} connected")

    def logged(self, name: str, text: str, times: int = 1) -> None:
        """Wait until a process has logged a text so many times."""
        self.until(lambda: self.fed.log(name).count(text) >= times, f"{name} logs {text!r} {times} times")

    # Looking into homes

    def waiting_parcels(self, site: str) -> list[str]:
        """Updates that a site still keeps for the server."""
        return sorted(path.name for path in (self.folder / site / "outbox").glob("*.update"))

    def partial(self, run: str, round: int, site: str) -> int:
        """How much of an update has reached the server's disk."""
        found = list((self.folder / "server/state/inbox" / run / str(round)).glob(f"{site}~*.part"))
        return found[0].stat().st_size if found else 0

    def events(self, name: str) -> int:
        """How often the server has journalled an event."""
        with closing(sqlite3.connect(self.folder / "server/state/foedus.db")) as db:
            return db.execute("SELECT count(*) FROM events WHERE name = ?", (name,)).fetchone()[0]
