"""Reports to systemd, read back from a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from foedus.server.notify import Notifier, from_environment


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        if request.param == "path":
            name = str(tmp_path / "n")
            listener.bind(name)
        else:
            listener.bind(f"\0foedus-test-{os.getpid()}")
            name = f"@foedus-test-{os.getpid()}"
        listener.settimeout(5)
        yield listener, name


def test_each_report_is_one_datagram(systemd: tuple[socket.socket, str]) -> None:
    listener, name = systemd
    notifier = from_environment({"NOTIFY_SOCKET": name})
    assert notifier.ready("2 sites\nFAKE=1")
    assert listener.recv(4096) == b"READY=1\nSTATUS=2 sites FAKE=1"
    assert notifier.ready()
    assert listener.recv(4096) == b"READY=1"
    assert notifier.status("round 3")
    assert listener.recv(4096) == b"STATUS=round 3"
    assert notifier.alive()
    assert listener.recv(4096) == b"WATCHDOG=1"
    assert notifier.stopping("draining")
    assert listener.recv(4096) == b"STOPPING=1\nSTATUS=draining"


@pytest.mark.parametrize("address", ["", "relative/path", "vsock:2:1234"])
def test_without_a_usable_socket_nothing_is_sent(address: str) -> None:
    notifier = from_environment({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})
    assert notifier == Notifier()
    assert not notifier.ready()
    assert from_environment({}) == Notifier()


def test_a_supervisor_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    assert not Notifier(str(tmp_path / "nobody")).ready()
    assert not Notifier("/" + "x" * 500).alive()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_ours_only_when_it_says_so(environment: dict[str, str], seconds: float | None) -> None:
    assert from_environment({"NOTIFY_SOCKET": "/run/n", **environment}).watchdog_seconds == seconds
