"""A bad line between a site and the server: slow, far, cut, or deaf in one direction."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

BLOCK_BYTES = 8192
POLL_SECONDS = 0.01


@dataclass(slots=True)
class Proxy:
    """Forwards TCP to ``target_port`` from a port of its own, in a thread of its own.

    Attributes may be changed while it runs.

    Attributes:
        bytes_per_second: in each direction, over all connections; None is unlimited.
        latency_seconds: added to every block, one way.
        swallow_down: drop what the server sends; the connection stays open.
        swallow_up: drop what the site sends.
        up_to: pass on to the server no more than makes ``num_up`` this; the rest waits.
        refuse: hang up on new connections.
        num_up, num_down: bytes passed on, to and from the server.
        waiting: whether ``up_to`` keeps something back.
    """

    target_port: int
    bytes_per_second: float | None = None
    latency_seconds: float = 0.0
    swallow_down: bool = False
    swallow_up: bool = False
    up_to: float = float("inf")
    refuse: bool = False
    port: int = 0
    num_up: int = 0
    num_down: int = 0
    waiting: bool = False
    _free_at: dict[str, float] = field(default_factory=lambda: {"up": 0.0, "down": 0.0})
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        listening = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(listening,), name="proxy")
        self._thread.start()
        listening.wait()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join()

    def cut(self) -> None:
        """Reset every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _serve(self, listening: threading.Event) -> None:
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", 0, limit=BLOCK_BYTES)
        )
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._cut()
            self._loop.run_until_complete(self._finish())
            self._loop.close()

    async def _finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = asyncio.current_task()
        assert mine is not None
        self._tasks.add(mine)
        self._writers.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            if self.refuse:
                return
            far_reader, far = await asyncio.open_connection("127.0.0.1", self.target_port, limit=BLOCK_BYTES)
            self._writers.add(far)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump("up", reader, far))
                both.create_task(self._pump("down", far_reader, writer))
        except* OSError:
            pass
        finally:
            for end in filter(None, (writer, far)):
                self._writers.discard(end)
                end.transport.abort()
            self._tasks.discard(mine)

    async def _pump(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Blocks in flight are few: a line that is full pushes back, as a real one does.
        flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        deliver = asyncio.create_task(self._deliver(way, flight, writer))
        try:
            while data := await reader.read(BLOCK_BYTES):
                now = self._loop.time()
                if self.bytes_per_second:
                    self._free_at[way] = max(now, self._free_at[way]) + len(data) / self.bytes_per_second
                    await asyncio.sleep(self._free_at[way] - now)
                await flight.put((self._loop.time() + self.latency_seconds, data))
            await flight.put((0.0, b""))
            await deliver
        finally:
            deliver.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(deliver, return_exceptions=True)
        raise ConnectionResetError  # either end's end is the end of both

    async def _deliver(
        self, way: str, flight: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await flight.get()
            if not data:
                return
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            while way == "up" and self.num_up + len(data) > self.up_to:
                self.waiting = True
                await asyncio.sleep(POLL_SECONDS)
            if self.swallow_up if way == "up" else self.swallow_down:
                continue
            writer.write(data)
            await writer.drain()
            if way == "up":
                self.num_up += len(data)
            else:
                self.num_down += len(data)
