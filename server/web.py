"""Health and metrics over plain HTTP, on a port of their own: ``/livez``, ``/readyz``, ``/metrics``.

For supervisors that cannot present a client certificate; meant for the loopback interface or a
pod's own network. It reads one bounded request line and headers, answers one GET and closes.
A fixed number of threads and one deadline for each whole exchange bound what a slow or hostile
client can hold.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from ..errors import ConfigError
from ..logs import log_event

NUM_THREADS = 4
EXCHANGE_SECONDS = 3.0
MAX_REQUEST_BYTES = 8_192
MAX_PORT = 65_535
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLAIN_TYPE = "text/plain; charset=utf-8"

log = logging.getLogger(__name__)

Reply = tuple[HTTPStatus, str, bytes]


class HealthPages:
    """The pages and the threads that serve them.

    Args:
        metrics: the text of ``/metrics``, made anew for each request.
        ready: whether ``/readyz`` answers 200 (else 503). ``/livez`` answers 200 while this process runs.
        exchange_seconds: how long one client may take from connecting to the last byte.
    """

    def __init__(
        self,
        *,
        metrics: Callable[[], bytes],
        ready: Callable[[], bool],
        exchange_seconds: float = EXCHANGE_SECONDS,
    ) -> None:
        self._metrics = metrics
        self._ready = ready
        self._exchange_seconds = exchange_seconds
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def start(self, host: str, port: int) -> int:
        """Serve on ``host`` and ``port`` (0 takes a free one); the port that was bound.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        if self._listener is not None:
            raise RuntimeError("the health pages are already being served")
        host = host.removeprefix("[").removesuffix("]")
        if not 0 <= port <= MAX_PORT:
            raise ConfigError(f"the health pages cannot listen on port {port}: a port is 0 to {MAX_PORT}")
        try:
            listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"the health pages cannot listen on {host}:{port}: {reason}", hint="choose another address or port"
            ) from None
        self._listener = listener
        self._threads = [
            threading.Thread(target=self._serve, args=(listener,), name=f"health-pages-{number}", daemon=True)
            for number in range(NUM_THREADS)
        ]
        for thread in self._threads:
            thread.start()
        bound: int = listener.getsockname()[1]
        return bound

    def stop(self) -> None:
        """Stop listening and wait for exchanges under way; harmless when nothing is served."""
        if self._listener is None:
            return
        # Wakes the threads that wait in accept, which closing alone does not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(2 * self._exchange_seconds)
        self._listener.close()
        self._listener, self._threads = None, []

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0 or not _listens(listener):
                    return
                time.sleep(0.05)  # out of file descriptors: others will close theirs
                continue
            with connection, suppress(OSError):
                self._exchange(connection, time.monotonic() + self._exchange_seconds)

    def _exchange(self, connection: socket.socket, deadline: float) -> None:
        request = _read_request(connection, deadline)
        if request is None:
            status, kind, body = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, PLAIN_TYPE, b"the request is too large\n"
        else:
            status, kind, body = self._answer(request)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nAllow: GET\r\nConnection: close\r\n\r\n"
        )
        connection.settimeout(_left(deadline))
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        # Closing with unread bytes would reset the connection and lose the answer.
        while _receive(connection, deadline):
            pass

    def _answer(self, request: bytes) -> Reply:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return HTTPStatus.BAD_REQUEST, PLAIN_TYPE, b"this is not an HTTP request\n"
        if words[0] != b"GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, PLAIN_TYPE, b"only GET is answered\n"
        try:
            return self._page(words[1].split(b"?", 1)[0])
        except Exception as error:  # noqa: BLE001 - a failing probe must answer, whatever it failed of
            log_event(log, "health_page_failed", logging.ERROR, error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, PLAIN_TYPE, b"the page failed; see the log\n"

    def _page(self, path: bytes) -> Reply:
        if path == b"/livez":
            return HTTPStatus.OK, PLAIN_TYPE, b"alive\n"
        if path == b"/readyz":
            if self._ready():
                return HTTPStatus.OK, PLAIN_TYPE, b"ready\n"
            return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN_TYPE, b"not ready\n"
        if path == b"/metrics":
            return HTTPStatus.OK, METRICS_TYPE, self._metrics()
        return HTTPStatus.NOT_FOUND, PLAIN_TYPE, b"there are /livez, /readyz and /metrics\n"


def _read_request(connection: socket.socket, deadline: float) -> bytes | None:
    """Everything up to the empty line, or None when that is too long."""
    received = b""
    while b"\r\n\r\n" not in received:
        if len(received) >= MAX_REQUEST_BYTES:
            return None
        part = _receive(connection, deadline)
        if not part:
            raise ConnectionResetError("the client left in the middle of its request")
        received += part
    return received


def _receive(connection: socket.socket, deadline: float) -> bytes:
    connection.settimeout(_left(deadline))
    return connection.recv(MAX_REQUEST_BYTES)


def _left(deadline: float) -> float:
    """Seconds until the deadline.

    Raises:
        TimeoutError: there are none.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the exchange took too long")
    return left


def _listens(listener: socket.socket) -> bool:
    return bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
