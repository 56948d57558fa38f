"""A real federation on this machine: a server and its sites as processes of their own.

Every process has its own home, key and certificate, and talks over loopback with mutual TLS; only
the distances are missing. The demonstration, the fault tests and the benchmarks run on it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ..client_sdk.config import RecordsEntry, TaskEntry, records_toml, toml_value
from ..client_sdk.enrol import join
from ..client_sdk.home import SiteHome
from ..clock import SystemClock
from ..errors import ConnectionFailed, FoedusError, RoundFailed
from ..modelfile import Model, write_model
from ..plan import Plan
from ..privacy.analytics.answer import Answers
from ..privacy.analytics.query import Query
from ..protos.v1 import operations_pb2, operations_pb2_grpc
from ..server.config import ServerHome
from ..server.credentials import OperatorHome
from ..server.init import initialise
from ..server.operator import ask, ask_query, fetch, invite, show, submit
from ..server.roster_key import make_roster_key, read_roster_key
from ..server.roster_signing import draft, publish

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.05


@dataclass(slots=True)
class LocalFederation:
    """A server and sites under one folder; leaving the ``with`` block ends every process.

    Args:
        folder: an empty folder for all homes and logs.
        name: the federation's name.
        settings: further lines for ``server.toml``, such as {"heartbeat_seconds": 1}.
        environment: additions to the environment of every process.
    """

    folder: Path
    name: str = "local"
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    web_port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> LocalFederation:
        self.port, self.web_port = free_port(), free_port()
        address = f"127.0.0.1:{self.port}"
        home = initialise(
            self.folder / "server", federation=self.name, address=address, listen=address, clock=SystemClock()
        )
        make_roster_key(self.roster_key)
        settings = {"web": f"127.0.0.1:{self.web_port}", **self.settings}
        with home.config.open("a") as file:
            file.writelines(f"{key} = {_toml(value)}\n" for key, value in settings.items())
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for name in list(self.processes):
            with suppress(subprocess.TimeoutExpired):
                self.processes[name].wait(STOP_SECONDS)
            self.kill(name)

    # Processes

    @property
    def operator(self) -> Path:
        """The folder with the operator's credentials."""
        return ServerHome(self.folder / "server").operator

    @property
    def roster_key(self) -> Path:
        """The operator's key that signs rosters, outside the server's home."""
        return self.folder / "roster.key"

    def start_server(self, command: list[str] | None = None) -> None:
        """Start the server and wait until it answers.

        Args:
            command: instead of ``python -m foedus``, such as a test's launcher.

        Raises:
            ConnectionFailed: it ended, or did not answer in time; its log is in the message.
        """
        self._spawn("server", [*(command or FOEDUS), "server", "up", str(self.folder / "server")])
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.processes["server"].poll() is not None or time.monotonic() > deadline:
                raise ConnectionFailed(f"the server did not start: {self.log('server')[-2000:]}")
            time.sleep(POLL_SECONDS)

    def add_site(
        self,
        site: str,
        entry: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        policy: Mapping[str, Any] | None = None,
    ) -> SiteHome:
        """Invite and enrol a site whose home is ``folder/site``, with one task that its policy allows.

        Args:
            site: its name.
            entry: of the task, with ``parameters``.
            policy: further keys for the top of ``policy.toml``, such as {"secure": {"min_sites": 4}}.
        """
        request = operations_pb2.InviteRequest(name=site, role="site", lifetime_seconds=3600, approved=True)
        roster_key = read_roster_key(self.roster_key).public_key().public_bytes_raw()
        invitation, _ = ask(self.operator, lambda stub: invite(stub, request, roster_key))
        home = SiteHome(self.folder / site)
        task = TaskEntry(entry=entry, parameters=dict(parameters or {}))
        name = self._task_name(task, home)
        asyncio.run(join(invitation, home, clock=SystemClock(), tasks={name: task}))
        lines = "".join(f"{key} = {toml_value(value)}\n" for key, value in (policy or {}).items())
        home.policy.write_text(lines + home.policy.read_text())
        return home

    def sign_roster(self) -> int:
        """Sign the keys of the sites added so far, as an operator who has compared them all; the roster's version."""
        key, home = read_roster_key(self.roster_key), OperatorHome(self.operator)

        async def signing(stub: operations_pb2_grpc.OperationsStub) -> int:
            drawn = await draft(stub, home, key.public_key().public_bytes_raw())
            if not drawn.changes:
                return drawn.version - 1
            return (await publish(stub, drawn, key)).version

        return ask(self.operator, signing)

    def start_site(self, site: str) -> None:
        """Start a site that was added."""
        self._spawn(site, [*FOEDUS, "site", "up", "--home", str(self.folder / site)])

    def terminate(self, name: str) -> int:
        """SIGTERM to the server or a site; its exit status."""
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(STOP_SECONDS)

    def kill(self, name: str) -> None:
        """SIGKILL to the server or a site."""
        process = self.processes[name]
        if process.poll() is None:
            process.kill()
        process.wait()

    def log(self, name: str) -> str:
        """What the server or a site has logged."""
        with suppress(FileNotFoundError):
            return (self.folder / f"{name}.log").read_text(errors="replace")
        return ""

    # Runs

    def submit(self, plan: Plan, initial: Model) -> str:
        """Start a run; its id."""
        path = self.folder / "initial.safetensors"
        write_model(path, initial)
        return ask(self.operator, lambda stub: submit(stub, plan, path)).id

    def show(self, run: str) -> operations_pb2.Run:
        """A run with its rounds as it stands."""
        return ask(self.operator, lambda stub: show(stub, run))

    def wait(
        self, run: str, until: Callable[[operations_pb2.Run], bool] | None = None, seconds: float = 120.0
    ) -> operations_pb2.Run:
        """Wait until a run has ended, or ``until`` holds.

        Raises:
            RoundFailed: it has not come so far in time; the server's log is in the message.
        """
        deadline = time.monotonic() + seconds
        shown: operations_pb2.Run | None = None
        while time.monotonic() < deadline:
            with suppress(ConnectionFailed):
                shown = self.show(run)
                if until(shown) if until else shown.state in ("finished", "failed", "stopped"):
                    return shown
            time.sleep(POLL_SECONDS)
        raise RoundFailed(f"run {run} did not come so far in {seconds} s: {shown}\n{self.log('server')[-3000:]}")

    def open_records(
        self,
        site: str,
        entry: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        person: str | None = None,
        policy: Mapping[str, Any],
    ) -> None:
        """Let a site be asked about records, before it is started.

        Args:
            site: its name.
            entry: of the function that returns its records, with ``parameters``; see ``RecordsEntry``.
            person: the column that says whose record each is.
            policy: ``[analytics]`` of its policy, such as {"columns": ["age"]}.
        """
        home = SiteHome(self.folder / site)
        records = RecordsEntry(entry=entry, parameters=dict(parameters or {}), person=person)
        with home.config.open("a") as file:
            file.write(records_toml(records))
        with home.policy.open("a") as file:
            lines = (f"{key} = {toml_value(value)}\n" for key, value in policy.items())
            file.writelines(["\n[analytics]\n", *lines])

    def ask(self, query: Query) -> Answers:
        """Put a query to the sites that are in the roster; the answers.

        Raises:
            RoundFailed, PolicyRefused: there are none.
        """
        return ask(self.operator, lambda stub: ask_query(stub, query))

    def fetch(self, run: str, which: str, path: Path) -> str:
        """Download a model of a run; its digest."""
        return ask(self.operator, lambda stub: fetch(stub, run, which, path))

    def _spawn(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def _answers(self) -> bool:
        with suppress(FoedusError):
            ask(self.operator, lambda stub: stub.Status(operations_pb2.StatusRequest()))
            return True
        return False

    def _task_name(self, task: TaskEntry, home: SiteHome) -> str:
        from ..client_sdk.loading import load_task

        return load_task(task.entry, task.parameters, home.path).name


FOEDUS = [sys.executable, "-m", "foedus"]


def free_port() -> int:
    """A port on loopback that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
