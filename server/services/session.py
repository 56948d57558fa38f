"""The control stream to each site."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ... import __version__
from ...errors import (
    CertificateExpired,
    FoedusError,
    NotApproved,
    ProtocolError,
    StaleRound,
    StoreError,
    VersionMismatch,
)
from ...privacy.secagg.codes import AbortCode
from ...privacy.secagg.codes import Refusal as SumRefusal
from ...protos.messages import Evaluation, Heartbeat, Hello, Phase, Refusal, SecureMessage, SiteMessage, Welcome, Work
from ...protos.v1 import session_pb2, session_pb2_grpc
from ...protos.wire import server_message_to_pb, site_message_from_pb
from ..access import Access, Caller, Context, caller
from ..assignments import outstanding, settled
from ..federation import Federation
from ..history import Verdict
from ..queries import Queries
from ..questions import outstanding_questions, settled_questions
from ..sessions import LiveSession

SILENCE_SECONDS = 60.0


class SessionService(session_pb2_grpc.SessionServicer):
    """One stream per site."""

    def __init__(self, fed: Federation, access: Access, queries: Queries) -> None:
        self._fed = fed
        self._access = access
        self._queries = queries

    async def Open(
        self, request_iterator: AsyncIterator[session_pb2.SiteMessage], context: Context
    ) -> AsyncIterator[session_pb2.ServerMessage]:
        """Welcome the site, tell it what is outstanding, then carry messages both ways."""
        fed, who = self._fed, caller.get()
        hello = await _hello(request_iterator)
        session = LiveSession(who.name, hello, since=fed.clock.now(), last_seen=fed.clock.now())
        session.send(Welcome(__version__, fed.config.federation, fed.clock.now(), fed.config.heartbeat_seconds))
        for release in (*settled(fed, who.name), *settled_questions(fed, who.name)):
            session.send(release)
        for assignment in outstanding(fed, who.name):
            session.send(assignment)
        for asks in outstanding_questions(fed, who.name):
            session.send(asks)
        for unanswered in fed.sums.unanswered(who.name):
            session.send(unanswered)
        fed.sessions.open(session)
        fed.feed.publish("site_connected", site=who.name)
        reader = asyncio.create_task(self._read(session, who, request_iterator))
        expiry = asyncio.get_running_loop().call_later(
            who.expires - fed.clock.now(), session.end, CertificateExpired.__name__
        )
        try:
            while (message := await session.outgoing.get()) is not None:
                yield server_message_to_pb(message)
            if reader.done() and not reader.cancelled() and (error := reader.exception()) is not None:
                raise error
            if session.closing:
                raise _ended(session.closing)
        finally:
            expiry.cancel()
            reader.cancel()
            fed.sessions.close(session)
            fed.registry.saw(who.name, fed.clock.now())
            fed.feed.publish("site_disconnected", site=who.name, detail=session.closing)

    async def _read(self, session: LiveSession, who: Caller, requests: AsyncIterator[session_pb2.SiteMessage]) -> None:
        silence = max(SILENCE_SECONDS, 4 * self._fed.config.heartbeat_seconds)
        try:
            while True:
                async with asyncio.timeout(silence):
                    message = await anext(requests, None)
                # What a site says after it was suspended, or replaced by itself, is not heard.
                if message is None or session.closing:
                    return
                self._access.throttle(who)
                session.last_seen = self._fed.clock.now()
                self._take(session, site_message_from_pb(message))
        except TimeoutError:
            session.closing = f"nothing heard for {silence:g} s"
        finally:
            session.end(session.closing)

    def _take(self, session: LiveSession, message: SiteMessage) -> None:
        fed, site = self._fed, session.site
        match message:
            case Heartbeat(work, progress):
                session.working_on = work
                if work is not None:
                    fed.collector.moved(site, progress)
            case Refusal() if message.work.phase is Phase.QUERY:
                self._require_asked(site, message.work)
                self._queries.refused(site, message)
            case Refusal():
                part = fed.participations.find(message.work, site)
                if part is None:
                    raise StaleRound(f"{site} was not asked for {message.work}")
                if part.verdict is Verdict.ASKED:
                    fed.participations.settle(
                        message.work, site, Verdict.REFUSED, code=message.code, reason=message.reason
                    )
                    fed.metrics.update_decided(Verdict.REFUSED, message.code)
                    fed.feed.publish(
                        "work_refused",
                        run=message.work.run,
                        round=message.work.round,
                        site=site,
                        detail=f"{message.code}: {message.reason}",
                    )
                fed.collector.settle(site, message.work, accepted=False)
            case Evaluation():
                self._evaluation(site, message)
            case SecureMessage():
                self._secure(site, message)
            case Hello():
                raise ProtocolError("Hello was sent twice on one session")

    def _secure(self, site: str, message: SecureMessage) -> None:
        fed, work = self._fed, message.work
        self._require_asked(site, work)
        try:
            words = message.words if work.phase is Phase.QUERY else None
            refusal = fed.sums.receive(site, work, message.body, words=words)
        except StaleRound as error:  # the sum was opened, or given up, while this was on its way
            refusal = SumRefusal(AbortCode.LATE, str(error))
        except StoreError as error:
            if work.phase is not Phase.QUERY:
                fed.hold(work.run, str(error))
                return
            refusal = SumRefusal(AbortCode.LATE, str(error))  # the site will be missed
        if refusal is not None:
            fed.feed.publish(
                "message_refused", run=work.run, round=work.round, site=site, detail=f"{refusal.code}: {refusal.reason}"
            )
            return
        for answered in fed.sums.answered(site, work):
            fed.collector.settle(answered, work, accepted=False)

    def _require_asked(self, site: str, work: Work) -> None:
        fed = self._fed
        asked = fed.queries.asked_site(work.run, site) if work.phase is Phase.QUERY else None
        if asked is None and fed.participations.find(work, site) is None:
            raise StaleRound(f"{site} was not asked for {work}")

    def _evaluation(self, site: str, message: Evaluation) -> None:
        fed, work = self._fed, message.work
        part = fed.participations.find(work, site)
        round = fed.rounds.find(work.run, work.round)
        if work.phase is not Phase.EVALUATE or part is None or round is None:
            raise StaleRound(f"{site} was not asked for {work}")
        if part.verdict is not Verdict.ASKED:
            return
        if message.model_sha256 != round.model_sha256:
            raise StaleRound(f"{site} evaluated another model than the one of {work}")
        fed.participations.settle(
            work, site, Verdict.ACCEPTED, num_examples=message.num_examples, metrics=message.metrics
        )
        fed.collector.settle(site, work, accepted=True)


async def _hello(requests: AsyncIterator[session_pb2.SiteMessage]) -> Hello:
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            first = await anext(requests, None)
    except TimeoutError:
        first = None
    if first is None:
        raise ProtocolError("the session ended before Hello")
    hello = site_message_from_pb(first)
    if not isinstance(hello, Hello):
        raise ProtocolError("a session begins with Hello")
    if not compatible(__version__, hello.version):
        raise VersionMismatch(
            f"this server runs foedus {__version__}, the site {hello.version}: at most one minor version apart",
            hint="upgrade the older of the two",
        )
    return hello


def compatible(mine: str, theirs: str) -> bool:
    """Whether two versions, "major.minor.patch", are at most one minor version apart."""
    try:
        (major, minor), (their_major, their_minor) = (map(int, v.split(".")[:2]) for v in (mine, theirs))
    except ValueError:
        return False
    return major == their_major and abs(minor - their_minor) <= 1


def _ended(reason: str) -> FoedusError:
    if reason == CertificateExpired.__name__:
        return CertificateExpired("the certificate of this session has expired", hint="reconnect with the renewed one")
    return NotApproved(reason, hint="ask the operator") if reason.startswith("the site was") else ProtocolError(reason)
