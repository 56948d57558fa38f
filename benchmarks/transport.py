"""Seconds per round of a task that does nothing but carry bytes, against the limit and a peer.

In one run, in turn: foedus (a real server and site processes, mutual TLS, durable state), a bare
grpc.aio echo of the same bytes between as many processes with the same TLS (the practical limit),
and Flower's deployment engine if ``flwr`` is installed (insecure, in-memory state: its default).

    python benchmarks/transport.py --sites 4 --mb 25 --rounds 5 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from foedus.privacy.certificates import issue, new_authority, new_key_pem, new_request
from foedus.privacy.identity import Identity
from foedus.protos.channel import CHUNK_BYTES, SERVER_OPTIONS, secure_channel
from foedus.simulations.local import free_port

sys.path.insert(0, str(Path(__file__).parent))
from _flower import flower_rounds
from _rounds import Measured, foedus_rounds, status_mb

ECHO = "/bench.Echo/Stream"
DAY = 86_400.0


def bare_rounds(sites: int, mb: float, rounds: int) -> Measured:
    """As many processes, each sending the bytes and receiving them back, over the same TLS."""
    now = time.time()
    authority_key, authority = new_authority("bench", now, DAY)
    port, context = free_port(), multiprocessing.get_context("spawn")

    def member(role: Any) -> tuple[bytes, bytes]:
        key = new_key_pem()
        return key, issue(authority_key, authority, new_request(key, role), Identity("bench", role, role), now, DAY)

    ready, stop = context.Event(), context.Event()
    server = context.Process(target=_serve_echo, args=(port, *member("server"), authority, ready, stop))
    server.start()
    barrier = context.Barrier(sites + 1)
    clients = [
        context.Process(target=_echo_client, args=(port, *member("site"), authority, int(mb * 1e6), rounds, barrier))
        for _ in range(sites)
    ]
    try:
        assert ready.wait(60)
        for client in clients:
            client.start()
        seconds = []
        for _ in range(rounds):
            barrier.wait(120)
            begun = time.perf_counter()
            barrier.wait(600)
            seconds.append(time.perf_counter() - begun)
        peak = status_mb(server.pid, "VmHWM")
    finally:
        stop.set()
        for process in [*clients, server]:
            process.join(20)
    return Measured(seconds, peak_mb=peak)


def _serve_echo(port: int, key: bytes, certificate: bytes, authority: bytes, ready: Any, stop: Any) -> None:
    async def echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for data in requests:
            yield data

    async def serve() -> None:
        server = grpc.aio.server(options=list(SERVER_OPTIONS))
        handlers = {"Stream": grpc.stream_stream_rpc_method_handler(echo)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", handlers),))
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        server.add_secure_port(f"127.0.0.1:{port}", credentials)
        await server.start()
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.stop(1)

    asyncio.run(serve())


def _echo_client(
    port: int, key: bytes, certificate: bytes, authority: bytes, num_bytes: int, rounds: int, barrier: Any
) -> None:
    block = os.urandom(min(CHUNK_BYTES, num_bytes))

    async def messages() -> AsyncIterator[bytes]:
        left = num_bytes
        while left > 0:
            yield block[:left] if left < len(block) else block
            left -= len(block)

    async def talk() -> None:
        channel = secure_channel(f"127.0.0.1:{port}", authority_pem=authority, key_pem=key, certificate_pem=certificate)
        stub = channel.stream_stream(ECHO)
        await channel.channel_ready()
        for _ in range(rounds):
            barrier.wait(600)
            async for _data in stub(messages()):
                pass
            barrier.wait(600)
        await channel.close(None)

    asyncio.run(talk())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--mb", type=float, default=25.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="measurements of ours and the limit, in turn")
    parser.add_argument("--without-peer", action="store_true", help="leave Flower out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for mb in sorted({0.0001, options.mb}):
        ours, limits = [], []
        for _ in range(options.repeats):
            ours.append(foedus_rounds(options.sites, mb, options.rounds))
            limits.append(bare_rounds(options.sites, mb, options.rounds))
        peer = None if options.without_peer or mb < 0.01 else flower_rounds(options.sites, mb, min(options.rounds, 3))
        seconds = statistics.median(m.median for m in ours)
        limit = statistics.median(m.median for m in limits)
        rows.append(
            {
                "name": f"{options.sites} sites, {mb:g} MB" if mb >= 0.01 else f"{options.sites} sites, no payload",
                "seconds": round(seconds, 4),
                "limit_seconds": round(limit, 4),
                "ratio_to_limit": round(limit / seconds, 3),
                "peer": "flwr deployment engine" if peer else None,
                "ratio_to_peer": round(peer["s_per_round"] / seconds, 1) if peer else None,
                "peak_mb": max(m.peak_mb for m in ours if m.peak_mb),
                "idle_mb": ours[0].idle_mb,
                "peer_peak_mb": peer["both_peak_mb"] if peer else None,
            }
        )
    result = {
        "benchmark": "transport",
        "params": {"sites": options.sites, "mb": options.mb, "rounds": options.rounds},
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "rows": rows,
    }
    if options.json:
        print(json.dumps(result))
        return
    for row in rows:
        print(
            f"{row['name']}: {row['seconds'] * 1000:.0f} ms a round, bare echo {row['limit_seconds'] * 1000:.0f} ms "
            f"({row['ratio_to_limit']:.0%} of the limit), server peak {row['peak_mb']} MB (idle {row['idle_mb']})"
            + (f", Flower {row['ratio_to_peer']} times slower, {row['peer_peak_mb']} MB" if row["peer"] else "")
        )


if __name__ == "__main__":
    main()
