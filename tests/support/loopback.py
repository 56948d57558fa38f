"""A real server in this process, on loopback with mutual TLS, and raw callers that obey no rule."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import numpy as np
from foedus import __version__
from foedus.clock import SystemClock
from foedus.configuration import load, validate
from foedus.layout import Role, layout_of
from foedus.modelfile import Model, ModelFile, write_model
from foedus.plan import Plan
from foedus.privacy import certificates as c
from foedus.privacy.identity import Identity
from foedus.protos.channel import CHANNEL_OPTIONS
from foedus.protos.invitation import Invitation
from foedus.protos.messages import Hello, TaskOffer
from foedus.protos.status import from_rpc_error
from foedus.protos.v1 import (
    common_pb2,
    enrolment_pb2,
    enrolment_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    transfer_pb2,
    transfer_pb2_grpc,
)
from foedus.protos.wire import site_message_to_pb
from foedus.server.app import Server, running
from foedus.server.config import ServerConfig, ServerHome
from foedus.server.init import initialise
from foedus.server.operator import show, submit

CODE = "ab" * 32
TASK = "toy"
DAY = 86_400.0


def toy_model() -> Model:
    """Four trainable zeros, two buffers at one, one counter at three."""
    arrays = {
        "w": np.zeros(4, np.float32),
        "running": np.ones(2, np.float32),
        "seen": np.array([3], np.int64),
    }
    return Model.of(layout_of(arrays, {"running": Role.BUFFER}), arrays)


def update_bytes(value: float, buffers: float = 1.0, counter: int = 3) -> bytes:
    """An update of the toy model with the same difference everywhere."""
    floats = np.array([value] * 4 + [buffers] * 2, np.float32)
    return floats.tobytes() + np.array([counter], np.int64).tobytes()


def plan(**changes: object) -> Plan:
    """A short plan for the toy task: two sites, one of which suffices, no evaluation."""
    values: dict[str, object] = {
        "name": "toy",
        "task": TASK,
        "rounds": 1,
        "max_failed_rounds": 0,
        "cohort": {"count": 2, "quorum": 1, "deadline_seconds": 60},
        "training": {"steps": 1},
        "evaluation": {"every": 0},
    }
    return validate(Plan, {**values, **changes}, "a test")


@dataclass
class Credentials:
    """A key and a certificate, and where they lead."""

    address: str
    authority_pem: bytes
    key_pem: bytes
    certificate_pem: bytes

    def channel(self) -> grpc.aio.Channel:
        """As the SDK's, except that it sends messages of any size."""
        return grpc.aio.secure_channel(self.address, *self._secured())

    def blocking_channel(self) -> grpc.Channel:
        """The same for a thread."""
        return grpc.secure_channel(self.address, *self._secured())

    def _secured(self) -> tuple[grpc.ChannelCredentials, list[tuple[str, object]]]:
        options = {**dict(CHANNEL_OPTIONS), "grpc.max_send_message_length": -1}
        credentials = grpc.ssl_channel_credentials(self.authority_pem, self.key_pem, self.certificate_pem)
        return credentials, list(options.items())


@dataclass
class Loopback:
    """The server, its home, and the means to make members and forgeries."""

    home: ServerHome
    server: Server
    folder: Path
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def fed(self):
        return self.server.federation

    @property
    def authority(self) -> bytes:
        return self.home.authority.read_bytes()

    def open(self, credentials: Credentials) -> grpc.aio.Channel:
        """A channel that is closed with the server."""
        channel = credentials.channel()
        self.channels.append(channel)
        return channel

    def certified(self, role: str, name: str, *, key: bytes | None = None, lifetime: float = DAY, age: float = 0.0):
        """A genuine certificate of this federation, whether or not the registry knows its holder."""
        key = key or c.new_key_pem()
        identity = Identity(self.fed.config.federation, role, name)
        request = c.new_request(key, name)
        pem = c.issue(
            self.home.authority_key.read_bytes(), self.authority, request, identity, time.time() - age, lifetime
        )
        return Credentials(self.address, self.authority, key, pem)

    def member(self, role: str, name: str, **options: float) -> Credentials:
        """A certificate whose holder is an active member."""
        credentials = self.certified(role, name, **options)
        self.fed.registry.add(
            name,
            role,
            key_sha256=c.key_sha256(credentials.key_pem),
            expires=c.expires(credentials.certificate_pem),
        )
        return credentials

    def operator(self) -> operations_pb2_grpc.OperationsStub:
        """The first operator's own stub."""
        folder = self.home.operator
        names = ("authority.pem", "key.pem", "certificate.pem")
        return operations_pb2_grpc.OperationsStub(
            self.open(Credentials(self.address, *((folder / name).read_bytes() for name in names)))
        )

    def site(self, name: str, **options: float) -> RawSite:
        """An enrolled site that speaks the protocol by hand."""
        credentials = self.member("site", name, **options)
        return RawSite(name, self.open(credentials), credentials)

    async def submit(self, wanted: Plan | None = None, model: Model | None = None) -> str:
        """Start a run of the toy task; its id."""
        path = self.folder / "initial.safetensors"
        write_model(path, model or toy_model())
        run = await submit(self.operator(), wanted or plan(), path)
        return run.id

    async def ended(self, run: str) -> operations_pb2.Run:
        """The run with its rounds once it has ended or paused."""
        async for event in self.operator().WatchRun(operations_pb2.RunRequest(run=run)):
            if event.name == "run_paused":
                break
        return await self.show(run)

    async def show(self, run: str) -> operations_pb2.Run:
        return await show(self.operator(), run)

    async def happened(self, run: str, name: str) -> operations_pb2.RunEvent:
        """Wait for an event of a run."""
        async for event in self.operator().WatchRun(operations_pb2.RunRequest(run=run)):
            if event.name == name:
                return event
        raise AssertionError(f"run {run} ended without {name}")

    def model(self, sha256: str) -> Model:
        return ModelFile.open(self.fed.blobs.path(sha256)).read()

    def invitation(self, text: str) -> Invitation:
        """An invitation with the port that was really bound."""
        return replace(Invitation.decode(text), address=self.address)


@asynccontextmanager
async def loopback(folder: Path, **settings: object) -> AsyncIterator[Loopback]:
    """Serve from a new (or the same) home under ``folder``."""
    home = ServerHome(folder / "server")
    if not home.config.exists():
        initialise(home.folder, federation="hearts", address="127.0.0.1:8443", listen=None, clock=SystemClock())
    values = {"listen": "127.0.0.1:0", "web": "127.0.0.1:0", "drain_seconds": 1.0, **settings}
    config = ServerConfig.model_validate({**load(ServerConfig, home.config).model_dump(), **values})
    async with running(home, config, SystemClock()) as server:
        found = Loopback(home, server, folder)
        (home.operator / "address").write_text(f"{found.address}\n")
        try:
            yield found
        finally:
            for channel in found.channels:
                await channel.close(None)


@dataclass
class RawSite:
    """A site without manners: it says what a test wants said. Errors come typed."""

    name: str
    channel: grpc.aio.Channel
    credentials: Credentials | None = None
    call: grpc.aio.StreamStreamCall | None = None
    outgoing: asyncio.Queue[session_pb2.SiteMessage | None] = field(default_factory=asyncio.Queue)

    def say(self, message: session_pb2.SiteMessage | None) -> None:
        """Queue a message on the session; None closes our half."""
        self.outgoing.put_nowait(message)

    def dial(self) -> None:
        """Open the session stream without a word."""
        self.outgoing = asyncio.Queue()
        outgoing = self.outgoing

        async def messages() -> AsyncIterator[session_pb2.SiteMessage]:
            while (message := await outgoing.get()) is not None:
                yield message

        self.call = session_pb2_grpc.SessionStub(self.channel).Open(messages())

    async def connect(self, *tasks: str, version: str = __version__) -> session_pb2.Welcome:
        """Open a session in good order, offering the toy task unless others are named."""
        self.dial()
        offers = tuple(TaskOffer(task, CODE) for task in tasks or (TASK,))
        self.say(site_message_to_pb(Hello(version, offers, time.time())))
        return await self.hear("welcome")

    async def hear(self, kind: str | None = None):
        """The next message from the server of a kind (others are skipped); an error comes typed."""
        assert self.call is not None
        try:
            while True:
                message = await self.call.read()
                if message is grpc.aio.EOF:
                    status = await self.call.code()
                    if status is not grpc.StatusCode.OK:
                        raise grpc.aio.AioRpcError(
                            status,
                            await self.call.initial_metadata(),
                            await self.call.trailing_metadata(),
                            await self.call.details(),
                        )
                    return None
                body = message.WhichOneof("body")
                if kind in (None, body):
                    return getattr(message, body)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None

    def header(self, order: session_pb2.Assignment, data: bytes, **changes: object) -> transfer_pb2.UploadHeader:
        """An honest header for ``data``, but for the changes."""
        values = {
            "run": order.work.run,
            "round": order.work.round,
            "model_sha256": order.model_sha256,
            "layout_sha256": order.layout_sha256,
            "num_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "num_examples": 10,
            "num_steps": 1,
            **changes,
        }
        return transfer_pb2.UploadHeader(**values)

    async def send(self, messages: Iterable[transfer_pb2.UploadMessage]) -> list[transfer_pb2.UploadReply]:
        """Any messages on an upload stream, whatever the server answers meanwhile; all replies.

        On a thread: the asyncio client may hide the server's status behind a failed write of its own.
        """
        assert self.credentials is not None

        def blocking() -> list[transfer_pb2.UploadReply]:
            with self.credentials.blocking_channel() as channel:
                return list(transfer_pb2_grpc.TransferStub(channel).Upload(iter(messages)))

        try:
            return await asyncio.to_thread(blocking)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def upload(
        self, order: session_pb2.Assignment, data: bytes, chunks: Iterable[tuple[int, bytes]] | None = None, **changes
    ) -> transfer_pb2.Receipt:
        """Header and chunks (default: all of ``data`` at once); the receipt."""
        pieces = [(0, data)] if chunks is None else chunks
        messages = [
            transfer_pb2.UploadMessage(header=self.header(order, data, **changes)),
            *(transfer_pb2.UploadMessage(chunk=common_pb2.Chunk(offset=o, data=d)) for o, d in pieces),
        ]
        replies = await self.send(messages)
        return replies[-1].receipt

    async def download(self, sha256: str, offset: int = 0) -> bytes:
        call = transfer_pb2_grpc.TransferStub(self.channel).Download(
            transfer_pb2.DownloadRequest(sha256=sha256, offset=offset)
        )
        try:
            return b"".join([chunk.data async for chunk in call])
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None

    async def join(
        self, secret: str, key_pem: bytes | None = None, signing_key: bytes = b""
    ) -> enrolment_pb2.JoinReply:
        request = c.new_request(key_pem or c.new_key_pem(), self.name).decode()
        try:
            return await enrolment_pb2_grpc.EnrolmentStub(self.channel).Join(
                enrolment_pb2.JoinRequest(secret=secret, request_pem=request, signing_key=signing_key)
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None


async def typed(call):
    """Await a raw call; its error as the SDK would raise it."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
