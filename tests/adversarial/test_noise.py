"""Random bytes to every method of a live server, which goes on serving those who speak properly."""

from __future__ import annotations

import asyncio
import random

import grpc
import psutil
import pytest
from foedus.protos.v1 import enrolment_pb2, operations_pb2, session_pb2, transfer_pb2
from google.protobuf import json_format
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from loopback import CODE, loopback, plan, update_bytes

pytestmark = pytest.mark.adversarial

METHODS = [
    (f"/{service.full_name}/{method.name}", method)
    for schema in (enrolment_pb2, operations_pb2, session_pb2, transfer_pb2, health_pb2, reflection_pb2)
    for service in schema.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
HARMFUL = "/foedus.v1.Operations/Drain"  # an operator who asks for a drain gets one
CALLS_EACH = 12
MAX_GROWTH_BYTES = 150 << 20
SAMPLES = {
    "SiteMessage": [
        {"hello": {"version": "0.1.0", "tasks": [{"name": "toy", "codeSha256": CODE}], "unixSeconds": 1.0}},
        {"heartbeat": {"progress": 7}},
        {"refusal": {"work": {"run": "ab", "round": 1, "phase": 1}, "code": "SiteVeto", "reason": "no"}},
    ],
    "UploadMessage": [
        {"header": {"run": "ab", "round": 1, "modelSha256": CODE, "layoutSha256": CODE, "sha256": CODE}},
        {"chunk": {"offset": 3, "data": "AAAA"}},
    ],
    "SubmitMessage": [
        {"header": {"planJson": "{}", "modelBytes": 5, "modelSha256": CODE}},
        {"chunk": {"data": "AAAA"}},
    ],
    "DownloadRequest": [{"sha256": CODE, "offset": 1}],
    "JoinRequest": [{"secret": "guess", "requestPem": "-----BEGIN CERTIFICATE REQUEST-----\nAAAA"}],
    "InviteRequest": [{"name": "a", "role": "site", "lifetimeSeconds": 1e300}],
    "ChangeRunRequest": [{"run": "a", "action": "stop"}],
}


def noise(draw: random.Random, method) -> bytes:
    """Random bytes, or a message of the right kind with a few bytes changed."""
    samples = SAMPLES.get(method.input_type.name)
    if not samples or draw.random() < 0.3:
        return draw.randbytes(draw.choice([0, 1, 2, 10, 100, 10_000]))
    kind = method.input_type._concrete_class
    raw = bytearray(json_format.ParseDict(draw.choice(samples), kind()).SerializeToString())
    for _ in range(draw.randint(0, 3)):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw[: draw.randint(0, len(raw))] if draw.random() < 0.3 else raw)


async def shout(channel, path, method, draw) -> grpc.StatusCode:
    """One call with noise; the status with which it ends."""
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    multicallable = getattr(channel, kind)(path)  # bytes in, bytes out
    request = (
        [noise(draw, method) for _ in range(draw.randint(0, 4))] if method.client_streaming else noise(draw, method)
    )
    call = multicallable(iter(request) if method.client_streaming else request, timeout=20)
    try:
        if not method.server_streaming:
            await call
        elif method.full_name == "grpc.health.v1.Health.Watch":
            await call.read()
            return grpc.StatusCode.OK
        else:
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code()
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        call.cancel()


async def test_noise_is_answered_and_harms_nobody(tmp_path, caplog):
    draw = random.Random(20_240_101)
    settings = {"reflection": True, "limits": {"calls_per_second": 1e6, "burst": 10**6}}
    async with loopback(tmp_path, **settings) as local:
        good = local.site("good")
        await good.connect()
        run = await local.submit(plan(rounds=3, cohort={"count": 1, "deadline_seconds": 60}, task="toy"))
        loud = [local.open(local.member("site", "loud")), local.open(local.member("operator", "loud"))]

        async def working():
            for _ in range(3):
                order = await good.hear("assignment")
                assert len(await good.download(order.model_sha256)) == order.model_bytes
                assert (await good.upload(order, update_bytes(1.0))).accepted

        async def shouting():
            found = []
            for channel in loud:
                for path, method in METHODS:
                    if path != HARMFUL:
                        found += [(path, await shout(channel, path, method, draw)) for _ in range(CALLS_EACH)]
            return found

        before = psutil.Process().memory_info().rss
        statuses, _ = await asyncio.gather(shouting(), working())
        grown = psutil.Process().memory_info().rss - before
        shown = await local.ended(run)
        assert (shown.state, shown.round) == ("finished", 3)
        assert {p.verdict for r in shown.rounds for p in r.participations} == {"accepted"}
    assert len(statuses) == 2 * (len(METHODS) - 1) * CALLS_EACH
    never = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
    assert [found for found in statuses if found[1] in never] == []
    assert "call_broke" not in caplog.text
    # INTERNAL is what gRPC makes of a stream that was answered while it was still being sent, and a bug otherwise.
    internal = {path for path, status in statuses if status is grpc.StatusCode.INTERNAL}
    assert {path for path in internal if not dict(METHODS)[path].client_streaming} == set()
    assert grown < MAX_GROWTH_BYTES


async def test_a_flood_of_connections_that_say_nothing(tmp_path):
    """Open TCP connections without TLS do not keep anybody from working."""
    async with loopback(tmp_path) as local:
        silent = [await asyncio.open_connection("127.0.0.1", local.server.port) for _ in range(100)]
        for _, writer in silent[::2]:
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
        site = local.site("a")
        await site.connect()
        run = await local.submit(plan(cohort={"count": 1}))
        assert (await site.upload(await site.hear("assignment"), update_bytes(1.0))).accepted
        assert (await local.ended(run)).state == "finished"
        for _, writer in silent:
            writer.close()
