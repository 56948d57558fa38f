"""The site's line to the server: it dials out, says hello, listens, and dials again for ever."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import grpc
import numpy as np
import numpy.typing as npt

from .. import __version__
from ..errors import AccessDenied, CertificateExpired, FoedusError, StaleRound, VersionMismatch
from ..logs import log_event
from ..privacy.certificates import expires, renew_at
from ..privacy.secagg.descriptor import SessionDescriptor
from ..protos.messages import (
    Assignment,
    Heartbeat,
    Hello,
    Phase,
    Question,
    Release,
    SecureMessage,
    SiteMessage,
    TaskOffer,
    Welcome,
    Work,
)
from ..protos.v1 import session_pb2, session_pb2_grpc
from ..protos.wire import server_message_from_pb, site_message_to_pb
from .backoff import Backoff
from .calls import calling
from .config import RecordsEntry
from .desk import Desk
from .enrol import renew
from .fetching import fetch_message
from .home import SiteHome
from .loading import InstalledTask
from .outbox import Outbox
from .questions import Questions
from .sum_store import SumStore
from .sums import Sums, read_update

log = logging.getLogger(__name__)

# A session that was refused for one of these will not be accepted by asking again.
FINAL = (VersionMismatch, CertificateExpired, AccessDenied)
RETIRED_CHANNEL_SECONDS = 600.0
RENEWAL_PAUSE_SECONDS = 1.0


@dataclass(slots=True)
class Line:
    """A site's connection, over any number of sessions, and its desk."""

    site: str
    address: str
    home: SiteHome
    tasks: dict[str, InstalledTask]
    outbox: Outbox
    sum_store: SumStore
    records: RecordsEntry | None = None
    backoff: Backoff = field(default_factory=Backoff)
    desk: Desk = field(init=False)
    sums: Sums = field(init=False)
    questions: Questions = field(init=False)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    _channel: grpc.aio.Channel = field(init=False)
    _renewed: asyncio.Event = field(default_factory=asyncio.Event)
    _outgoing: asyncio.Queue[SiteMessage] | None = field(init=False, default=None)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sums = Sums(self.home, self.sum_store, self._say, self._call_off, self._kept, self._fetched)
        self.questions = Questions(self.home, self.records, self.sums, self._say)
        self.desk = Desk(self.site, self.home, self.tasks, self.outbox, self.sums, lambda: self._channel, self._say)

    async def serve(self) -> None:
        """Take part until cancelled.

        Raises:
            VersionMismatch, CertificateExpired, AccessDenied: asking again would not help.
            Exception: what ended the desk or the renewal of the certificate; without either, this
                site would be connected and do nothing.
        """
        self._channel = self._open_channel()
        desk = asyncio.create_task(self.desk.run(), name="desk")
        sums = asyncio.create_task(self.sums.run(), name="secure sums")
        renewal = asyncio.create_task(self._keep_certificate(), name="certificate")
        try:
            while True:
                failure = await self._one_session({desk, sums, renewal})
                _require_running(desk, sums, renewal)
                if isinstance(failure, FINAL):
                    raise failure
                if self._renewed.is_set():
                    continue
                wait = self.backoff.next_seconds()
                log_event(log, "session_ended", reason=str(failure or "the server ended it"), again_in_seconds=wait)
                await asyncio.sleep(wait)
        finally:
            self.desk.interrupt()
            self.questions.interrupt()
            tasks = (desk, sums, renewal, *self._closing)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._channel.close(None)

    async def _one_session(self, background: set[asyncio.Task[None]]) -> FoedusError | None:
        """One stream, from hello to its end; why it ended. It ends with the first background task too."""
        outgoing: asyncio.Queue[SiteMessage] = asyncio.Queue()
        offers = tuple(TaskOffer(name, task.code_sha256) for name, task in self.tasks.items())
        outgoing.put_nowait(Hello(__version__, offers, time.time()))
        self._outgoing = outgoing
        self._renewed.clear()
        call = session_pb2_grpc.SessionStub(self._channel).Open(_messages(outgoing))
        listening = asyncio.create_task(self._listen(call))
        renewed = asyncio.create_task(self._renewed.wait())
        try:
            await asyncio.wait({listening, renewed, *background}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
        except FoedusError as error:
            return error
        finally:
            self._outgoing = None
            self.connected.clear()
            call.cancel()
            listening.cancel()
            renewed.cancel()
        return None

    async def _listen(self, call: AsyncIterator[session_pb2.ServerMessage]) -> None:
        heart: asyncio.Task[None] | None = None
        try:
            with calling():
                async for message in call:
                    match server_message_from_pb(message):
                        case Welcome() as welcome:
                            self._welcomed(welcome)
                            heart = heart or asyncio.create_task(self._beat(welcome.heartbeat_seconds))
                        case Assignment() as assignment:
                            self.desk.assign(assignment)
                        case Question() as question:
                            self.questions.ask(question)
                        case Release() as release if release.work.phase is Phase.QUERY:
                            self.questions.release(release)
                        case Release() as release:
                            self.desk.release(release)
                        case SecureMessage() as secure:
                            await self.sums.hear(secure)
        finally:
            if heart is not None:
                heart.cancel()

    def _call_off(self, work: Work) -> None:
        if work.phase is Phase.QUERY:
            self.questions.call_off(work)
        else:
            self.desk.call_off(work)

    def _welcomed(self, welcome: Welcome) -> None:
        log_event(
            log,
            "session_opened",
            federation=welcome.federation,
            server_version=welcome.version,
            clock_skew_seconds=round(time.time() - welcome.unix_seconds, 3),
        )
        self.backoff.reset()
        self.connected.set()

    async def _beat(self, seconds: float) -> None:
        while True:
            self._say(Heartbeat(self.desk.current, self.desk.progress))
            await asyncio.sleep(seconds)

    def _kept(self, session: SessionDescriptor) -> npt.NDArray[np.float32]:
        parcel = self.outbox.find(session.run, session.round, session.model_digest.hex())
        if parcel is None:
            raise StaleRound(f"the update of round {session.round} of run {session.run} is not kept any more")
        return read_update(parcel.path, session.num_coordinates)

    async def _fetched(self, sha256: str, num_bytes: int) -> bytes:
        return await fetch_message(self.home, lambda: self._channel, sha256, num_bytes)

    def _say(self, message: SiteMessage) -> None:
        # Without a session nothing is kept: the server repeats what is outstanding when it is back.
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)

    async def _keep_certificate(self) -> None:
        """Renew after two thirds of the certificate's life, then move to a connection with the new one."""
        backoff = Backoff(longest_seconds=60.0)
        while True:
            certificate = self.home.certificate.read_bytes()
            # The pause is for a clock so wrong that every certificate seems to be due.
            await asyncio.sleep(max(RENEWAL_PAUSE_SECONDS, renew_at(certificate) - time.time()))
            try:
                await renew(self._channel, self.home)
            except FoedusError as error:
                log_event(log, "renewal_failed", logging.WARNING, reason=str(error), expires=expires(certificate))
                await asyncio.sleep(backoff.next_seconds())
                continue
            backoff.reset()
            log_event(log, "certificate_renewed", expires=expires(self.home.certificate.read_bytes()))
            await self._change_channel()

    async def _change_channel(self) -> None:
        # Transfers that are under way finish on the old connection; the session moves at once, for
        # the server ends it with the certificate it was opened with.
        retired, self._channel = self._channel, self._open_channel()
        self._renewed.set()
        closing = asyncio.create_task(retired.close(RETIRED_CHANNEL_SECONDS))
        self._closing.add(closing)  # the event loop alone would not keep it
        closing.add_done_callback(self._closing.discard)

    def _open_channel(self) -> grpc.aio.Channel:
        return self.home.credentials().channel(self.address)


def _require_running(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        if not task.done():
            continue
        error = None if task.cancelled() else task.exception()
        log_event(log, "site_broke", logging.ERROR, error, task=task.get_name())
        raise error or RuntimeError(f"the site's {task.get_name()} ended, expected it to go on")


async def _messages(outgoing: asyncio.Queue[SiteMessage]) -> AsyncIterator[session_pb2.SiteMessage]:
    while True:
        yield site_message_to_pb(await outgoing.get())
