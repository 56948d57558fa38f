"""A site behind an HTTP proxy: gRPC follows ``https_proxy``, and so everything a site does goes through it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from foedus.client_sdk.loading import load_task
from foedus.plan import Cohort, LocalTraining, Plan
from foedus.simulations.local import LocalFederation

TASK = """
import numpy as np
from foedus import ArrayTask

task = ArrayTask(
    name="add",
    initial=lambda seed: {"w": np.zeros(3, np.float32)},
    train=lambda arrays, job: ({"w": arrays["w"] + np.float32(2)}, 10),
    evaluate=lambda arrays: (10, {"loss": float(arrays["w"][0])}),
)
"""


class ConnectProxy:
    """An HTTP proxy that knows CONNECT and counts the tunnels it opened."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> ConnectProxy:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._done.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        verb, target, _ = request.split(" ", 2)
        assert verb == "CONNECT"
        self.tunnels.append(target)
        host, _, port = target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer), return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    with ConnectProxy() as found:
        yield found


def test_a_site_takes_part_through_a_proxy(tmp_path: Path, proxy: ConnectProxy) -> None:
    (tmp_path / "task.py").write_text(TASK)
    entry = f"{tmp_path / 'task.py'}:task"
    with LocalFederation(tmp_path) as federation:
        federation.start_server()
        federation.add_site("st-anna", entry)
        federation.environment = {"https_proxy": f"http://127.0.0.1:{proxy.port}", "no_proxy": ""}
        federation.start_site("st-anna")
        plan = Plan(name="add", task="add", rounds=2, cohort=Cohort(minimum=1), training=LocalTraining(steps=1))
        run = federation.wait(federation.submit(plan, load_task(entry, {}, tmp_path).initial(0)))
        assert run.state == "finished"
        assert run.rounds[-1].evaluation_metrics["loss"] == 4.0
        assert set(proxy.tunnels) == {f"127.0.0.1:{federation.port}"}
