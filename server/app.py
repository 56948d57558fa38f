"""The server's life: assemble, become ready, serve, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health  # type: ignore[attr-defined]

from .. import __version__
from ..aggregators.kernel_choice import best_kernel
from ..clock import Clock
from ..errors import ConfigError
from ..files import private_folder
from ..logs import log_event
from ..privacy.secagg.descriptor import SessionDescriptor
from ..privacy.secagg.judging import Judged
from ..protos.address import split_address
from ..protos.channel import SERVER_OPTIONS
from ..protos.v1 import (
    enrolment_pb2,
    enrolment_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    transfer_pb2,
)
from . import notify
from .access import Access
from .aggregation import workers_for
from .authority import Authority, is_loopback
from .blobs import Blobs, Inbox
from .collector import Collector
from .config import ServerConfig, ServerHome
from .exclusion import suspend_distrusted
from .federation import Federation
from .feed import Feed
from .gauges import metrics_page
from .intake import Intake
from .interceptor import Guard
from .memory import share_one_heap
from .participation_records import ParticipationRecords
from .queries import Queries
from .query_records import QueryRecords
from .registry import Registry
from .rosters import Rosters
from .round_records import RoundRecords
from .run_records import RunRecords
from .runs import Runs, verify_inbox
from .secure_choice import selected_by
from .services.enrolment import EnrolmentService
from .services.operations import OperationsService
from .services.session import SessionService
from .services.transfer import TransferService
from .sessions import Sessions
from .store import Store
from .sum_records import SumRecords
from .sums import Sums
from .telemetry import new_metrics
from .web import HealthPages

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Server:
    """A running server. ``port`` is the one that was bound, ``web_port`` that of the health pages."""

    federation: Federation
    runs: Runs
    port: int
    web_port: int
    _drain: asyncio.Event

    def drain(self) -> None:
        """Begin to drain; ``drained`` returns, and leaving ``running`` completes it."""
        self._drain.set()

    async def drained(self) -> None:
        """Wait until somebody asks for a drain."""
        await self._drain.wait()


@asynccontextmanager
async def running(home: ServerHome, config: ServerConfig, clock: Clock) -> AsyncIterator[Server]:
    """Serve until the block ends; then drain, leaving every run where a restart takes it up.

    Raises:
        ConfigError: an address cannot be listened on.
        StoreError: the state cannot be opened, or another server has it open.
    """
    guard = home.lock()
    try:
        store = Store(home.database)
        try:
            fed = _federation(home, config, clock, store)
            fed.blobs.sweep()
            verify_inbox(fed)
            async with _serving(home, fed) as server:
                yield server
        finally:
            store.close()
    finally:
        os.close(guard)


async def serve(home: ServerHome, config: ServerConfig, clock: Clock) -> None:
    """Run as a service: SIGTERM or SIGINT drains, a second one exits at once."""
    share_one_heap()
    loop = asyncio.get_running_loop()
    notifier = notify.from_environment(os.environ)
    async with running(home, config, clock) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _on_signal, server)
        notifier.ready(f"serving {config.federation} on port {server.port}")
        watchdog = asyncio.create_task(_watchdog(notifier))
        try:
            await server.drained()
        finally:
            watchdog.cancel()
            notifier.stopping("draining")


def _federation(home: ServerHome, config: ServerConfig, clock: Clock, store: Store) -> Federation:
    registry = Registry(store, clock)
    rosters = Rosters(store, clock, registry, config.federation)
    runs = RunRecords(store, clock)

    def choose(run: str, session: SessionDescriptor, judged: Judged) -> Collection[bytes]:
        return selected_by(runs.find(run).plan, session, judged)

    return Federation(
        config=config,
        clock=clock,
        runs=runs,
        rounds=RoundRecords(store, clock),
        participations=ParticipationRecords(store, clock),
        queries=QueryRecords(store, clock),
        registry=registry,
        rosters=rosters,
        blobs=Blobs(private_folder(home.blobs)),
        inbox=Inbox(private_folder(home.inbox)),
        sessions=Sessions(),
        sums=Sums(SumRecords(store), rosters, registry, choose),
        collector=Collector(clock),
        feed=Feed(clock),
        metrics=new_metrics(__version__),
        workers=workers_for(config.aggregation),
    )


@asynccontextmanager
async def _serving(home: ServerHome, fed: Federation) -> AsyncIterator[Server]:
    config, clock = fed.config, fed.clock
    authority = Authority(home, config, clock, fed.registry, fed.metrics)
    access = Access(fed.registry, config.federation, authority.certificate_pem, config.limits)
    runs, queries, intake, draining = Runs(fed), Queries(fed), Intake(fed), asyncio.Event()
    operations = OperationsService(fed, runs, queries, authority, draining.set)
    grpc_server = grpc.aio.server(interceptors=[Guard(access, fed.metrics)], options=list(SERVER_OPTIONS))
    enrolment_pb2_grpc.add_EnrolmentServicer_to_server(EnrolmentService(fed, authority), grpc_server)
    session_pb2_grpc.add_SessionServicer_to_server(SessionService(fed, access, queries), grpc_server)
    TransferService(fed, intake).add_to(grpc_server)
    operations_pb2_grpc.add_OperationsServicer_to_server(operations, grpc_server)
    # A new HealthServicer says SERVING at once; we are not until everything below has worked.
    healthy = health.HealthServicer()
    await healthy.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, grpc_server)
    if config.reflection:
        _enable_reflection(grpc_server)
    port = _bind(grpc_server, config.listen, authority)
    ready = False
    loop = asyncio.get_running_loop()
    pages = HealthPages(metrics=lambda: metrics_page(fed, loop), ready=lambda: ready)
    web_port = _start_pages(pages, config.web)
    await grpc_server.start()
    server = Server(fed, runs, port, web_port, draining)
    suspend_distrusted(fed)
    runs.recover()
    queries.recover()
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    ready = True
    log_event(log, "server_started", port=port, web_port=web_port, version=__version__, kernel=best_kernel().name)
    try:
        yield server
    finally:
        ready = False
        operations.draining = True
        await healthy.enter_graceful_shutdown()
        await runs.drain()
        await queries.drain()
        fed.sessions.end_all("the server is draining")
        fed.feed.close()
        await grpc_server.stop(config.drain_seconds)
        # On another thread: a page under way may be waiting for this one.
        await asyncio.to_thread(pages.stop)
        log_event(log, "server_stopped")


def _bind(server: grpc.aio.Server, listen: str, authority: Authority) -> int:
    split_address(listen) if not listen.endswith(":0") else None
    try:
        port = server.add_secure_port(listen, authority.server_credentials())
    except RuntimeError:
        port = 0
    if not port:
        raise ConfigError(f"the address {listen} cannot be listened on", hint="is another server running there?")
    return int(port)


def _start_pages(pages: HealthPages, web: str) -> int:
    host, _, port = web.rpartition(":")
    if not is_loopback(web if not web.endswith(":0") else f"{host}:1"):
        log_event(log, "health_pages_exposed", logging.WARNING, address=web)
    return pages.start(host, int(port))


def _enable_reflection(server: grpc.aio.Server) -> None:
    from grpc_reflection.v1alpha import reflection

    schemas = (enrolment_pb2, session_pb2, transfer_pb2, operations_pb2, health_pb2)
    names = [service.full_name for schema in schemas for service in schema.DESCRIPTOR.services_by_name.values()]
    reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server)


def _on_signal(server: Server) -> None:
    if server._drain.is_set():
        os._exit(1)
    log_event(log, "drain_began")
    server.drain()


async def _watchdog(notifier: notify.Notifier) -> None:
    if notifier.watchdog_seconds is None:
        return
    while True:
        notifier.alive()
        await asyncio.sleep(notifier.watchdog_seconds / 3)
