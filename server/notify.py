"""Telling systemd how the service fares: ten lines over a datagram socket (sd_notify(3)), no dependency."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

SEND_TIMEOUT_SECONDS = 1.0
MAX_STATUS = 200


@dataclass(frozen=True, slots=True)
class Notifier:
    """Where to report; with no address every report is silently dropped.

    Reports answer whether they were sent. They never raise: a supervisor that cannot be reached
    must not stop the service that it supervises.

    Attributes:
        address: a socket's path, or its abstract name after an ``@``, or "".
        watchdog_seconds: systemd restarts the service after this long without ``alive``; None is no watchdog.
    """

    address: str = ""
    watchdog_seconds: float | None = None

    def ready(self, status: str = "") -> bool:
        """The service is up: its store is open and its port answers."""
        return self._send("READY=1", *_status(status))

    def stopping(self, status: str = "") -> bool:
        """The service has begun to drain."""
        return self._send("STOPPING=1", *_status(status))

    def status(self, status: str) -> bool:
        """One line for ``systemctl status``."""
        return self._send(*_status(status))

    def alive(self) -> bool:
        """The service makes progress; to be said at least twice in ``watchdog_seconds``."""
        return self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> bool:
        if not self.address or not lines:
            return False
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(SEND_TIMEOUT_SECONDS)
                channel.connect(address)
                channel.sendall("\n".join(lines).encode())
        except OSError:
            return False
        return True


def from_environment(environment: Mapping[str, str]) -> Notifier:
    """The notifier that the environment names; it reports nowhere when systemd did not start this process."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return Notifier()
    microseconds = environment.get("WATCHDOG_USEC", "")
    ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    watched = ours and microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
    return Notifier(address, int(microseconds) / 1e6 if watched else None)


def _status(text: str) -> tuple[str, ...]:
    # A line end would begin another assignment.
    return (f"STATUS={' '.join(text.split())[:MAX_STATUS]}",) if text else ()
