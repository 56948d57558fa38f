"""The server as a real process under a supervisor: readiness, watchdog, health pages, drain."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from foedus.aggregators.kernel_choice import best_kernel
from foedus.clock import SystemClock
from foedus.server.init import initialise

PATIENCE_SECONDS = 30
COMMAND = [sys.executable, "-c", "from foedus.cli import main; main()", "server", "up"]


@dataclass
class Supervised:
    process: subprocess.Popen[str]
    systemd: socket.socket
    web: str
    log: Path

    def reports(self, wanted: str) -> None:
        """Wait for a report that begins with ``wanted``; a process that has ended will send none."""
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE_SECONDS:
            with suppress(TimeoutError):
                if self.systemd.recv(4096).decode().startswith(wanted):
                    return
                continue
            assert self.process.poll() is None, f"no {wanted}; the server ended: {self.log.read_text()}"
        pytest.fail(f"no {wanted} within {PATIENCE_SECONDS} s: {self.log.read_text()}")

    def get(self, page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.web}{page}", timeout=PATIENCE_SECONDS) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    home = tmp_path / "home"
    address, web = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    made = initialise(home, federation="trial", address=address, listen=address, clock=SystemClock())
    with made.config.open("a") as config:
        config.write(f'web = "{web}"\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(1)
        environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        environment.pop("WATCHDOG_PID", None)
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen([*COMMAND, str(home)], env=environment, stderr=log, text=True)
        try:
            yield Supervised(process, systemd, web, tmp_path / "log")
        finally:
            process.kill()
            process.wait()


def test_a_supervised_life(supervised: Supervised) -> None:
    supervised.reports("READY=1")
    supervised.reports("WATCHDOG=1")
    assert supervised.get("/livez") == (200, "alive\n")
    assert supervised.get("/readyz") == (200, "ready\n")
    assert supervised.get("/nothing")[0] == 404
    status, page = supervised.get("/metrics")
    assert status == 200
    assert re.search(r'^foedus_sites\{state="active"\} 0\.0$', page, re.MULTILINE), "operators are no sites"
    assert 'foedus_rounds_total{outcome="committed"} 0.0' in page

    supervised.process.send_signal(signal.SIGTERM)
    supervised.reports("STOPPING=1")
    assert supervised.process.wait(PATIENCE_SECONDS) == 0

    lines = supervised.log.read_text().splitlines()
    assert [line for line in lines if not line.startswith('{"time": ')] == [], "one JSON object a line"
    (started,) = [line for line in lines if '"event": "server_started"' in line]
    assert json.loads(started)["kernel"] == best_kernel().name
    assert any('"event": "server_stopped"' in line for line in lines)


def test_a_taken_port_ends_it_with_the_status_that_is_not_retried(supervised: Supervised) -> None:
    supervised.reports("READY=1")
    home = Path(supervised.process.args[-1])  # type: ignore[index]
    address = tomllib.loads((home / "server.toml").read_text())["listen"]
    other = initialise(
        home.with_name("other"), federation="trial", address=address, listen=address, clock=SystemClock()
    )
    second = up(other.folder)
    assert second.returncode == 2, second.stderr
    assert "cannot be listened on" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_home_in_use_ends_it_with_the_status_that_is_retried(supervised: Supervised) -> None:
    """The server that works there may be about to end."""
    supervised.reports("READY=1")
    second = up(Path(supervised.process.args[-1]))  # type: ignore[index]
    assert second.returncode == 1, second.stderr
    assert "another process works in" in second.stderr
    assert "Traceback" not in second.stderr


def up(home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, str(home)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
