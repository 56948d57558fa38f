"""The health pages over a real socket, with good, rude, slow and absent clients."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from foedus.errors import ConfigError
from foedus.server.telemetry import new_metrics
from foedus.server.web import MAX_REQUEST_BYTES, NUM_THREADS, HealthPages


@dataclass
class Served:
    port: int
    ready: bool | Exception = False

    def is_ready(self) -> bool:
        if isinstance(self.ready, Exception):
            raise self.ready
        return self.ready


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(0)
    pages = HealthPages(metrics=new_metrics("1.2.3").page, ready=served.is_ready, exchange_seconds=1.0)
    served.port = pages.start("127.0.0.1", 0)
    yield served
    pages.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("health-pages")]


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def exchange(port: int, request: bytes) -> tuple[int, bytes, bytes]:
    """Status, head and body of the answer to raw bytes; status 0 for none."""
    with connect(port) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    if head:
        assert f"Content-Length: {len(body)}".encode() in head
    return int(head.split(b" ")[1]) if head else 0, head, body


def get(port: int, path: str) -> tuple[int, bytes, bytes]:
    return exchange(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def test_alive_while_not_ready(served: Served) -> None:
    assert get(served.port, "/livez")[::2] == (200, b"alive\n")
    assert get(served.port, "/readyz")[::2] == (503, b"not ready\n")
    served.ready = True
    assert get(served.port, "/readyz?verbose")[::2] == (200, b"ready\n")


def test_metrics(served: Served) -> None:
    status, head, body = get(served.port, "/metrics")
    assert status == 200
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert b'version="1.2.3"} 1.0' in body


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez/../metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /livez HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"HEAD /livez HTTP/1.1\r\n\r\n", 405),
        (b"GET /livez\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /" + b"x" * (4 * MAX_REQUEST_BYTES), 431),
        (b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * MAX_REQUEST_BYTES, 431),
    ],
)
def test_other_requests_are_refused(served: Served, request_bytes: bytes, status: int) -> None:
    assert exchange(served.port, request_bytes)[0] == status
    assert get(served.port, "/livez")[0] == 200


def test_a_probe_that_fails_says_500_and_no_more(served: Served) -> None:
    served.ready = ZeroDivisionError("the password is hunter2")
    status, head, body = get(served.port, "/readyz")
    assert status == 500
    assert b"hunter2" not in head + body
    assert get(served.port, "/livez")[0] == 200


def test_a_request_in_pieces_is_put_together(served: Served) -> None:
    with connect(served.port) as connection:
        for part in (b"GET /li", b"vez HTTP/1.1\r\n", b"\r\n"):
            connection.sendall(part)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_slow_clients_on_every_thread_are_cut_off(served: Served) -> None:
    slow = [connect(served.port) for _ in range(2 * NUM_THREADS)]
    for connection in slow:
        connection.sendall(b"GET /livez HT")
    # Answered once the deadline has freed the threads, although no slow client ever went away.
    assert get(served.port, "/livez")[0] == 200
    for connection in slow:
        with connection:
            assert connection.recv(1) == b""


def test_a_client_that_leaves_at_once_harms_nobody(served: Served) -> None:
    for _ in range(20):
        connect(served.port).close()
    assert get(served.port, "/livez")[0] == 200


def test_stopping_ends_it_and_may_be_repeated() -> None:
    pages = HealthPages(metrics=lambda: b"", ready=lambda: True)
    port = pages.start("127.0.0.1", 0)
    with pytest.raises(RuntimeError, match="already"):
        pages.start("127.0.0.1", 0)
    pages.stop()
    pages.stop()
    with pytest.raises(ConnectionRefusedError):
        connect(port)
    assert pages.start("127.0.0.1", port) == port
    pages.stop()


def test_a_port_in_use_is_named(served: Served) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{served.port}: Address already in use"):
        HealthPages(metrics=lambda: b"", ready=lambda: True).start("127.0.0.1", served.port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_with_and_without_brackets(host: str) -> None:
    pages = HealthPages(metrics=lambda: b"", ready=lambda: True)
    port = pages.start(host, 0)
    socket.create_connection(("::1", port), timeout=20).close()
    pages.stop()


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("127.0.0.1", 99_999)])
def test_an_impossible_address_is_a_configuration_error(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        HealthPages(metrics=lambda: b"", ready=lambda: True).start(host, port)
