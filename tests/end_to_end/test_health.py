"""What supervisors, balancers and dashboards see of a server's life."""

from __future__ import annotations

import asyncio

import pytest
from foedus.protos.v1 import operations_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from loopback import loopback, update_bytes
from prometheus_client.parser import text_string_to_metric_families

SERVING, NOT_SERVING = 1, 2


async def page(local, path):
    """(status, body) of a health page, over a plain socket."""
    reader, writer = await asyncio.open_connection("127.0.0.1", local.server.web_port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


async def test_ready_means_ready(tmp_path):
    async with loopback(tmp_path) as local:
        stub = health_pb2_grpc.HealthStub(local.open(local.member("site", "a")))
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        assert await page(local, "/livez") == (200, "alive\n")
        assert await page(local, "/readyz") == (200, "ready\n")
        assert (await page(local, "/nothing"))[0] == 404


async def test_watchers_hear_of_the_drain_and_readyz_says_so(tmp_path, monkeypatch):
    """Both while the server still finishes what is under way."""
    seen = {}
    async with loopback(tmp_path) as local:
        stub = health_pb2_grpc.HealthStub(local.open(local.member("site", "a")))
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        real = local.server.runs.drain

        async def draining():
            seen["readyz"] = await page(local, "/readyz")
            seen["livez"] = await page(local, "/livez")
            seen["watch"] = (await watch.read()).status
            seen["check"] = (await stub.Check(health_pb2.HealthCheckRequest())).status
            seen["status"] = await local.operator().Status(operations_pb2.StatusRequest())
            watch.cancel()
            await real()

        monkeypatch.setattr(type(local.server.runs), "drain", lambda _self: draining())
        channels, local.channels = local.channels, []
    for channel in channels:
        await channel.close(None)
    assert seen["readyz"] == (503, "not ready\n")
    assert seen["livez"][0] == 200
    assert (seen["watch"], seen["check"]) == (NOT_SERVING, NOT_SERVING)
    assert seen["status"].draining


async def test_asking_for_a_drain_is_heard(tmp_path):
    async with loopback(tmp_path) as local:
        drained = asyncio.create_task(local.server.drained())
        await local.operator().Drain(operations_pb2.DrainRequest())
        await asyncio.wait_for(drained, 20)


async def test_the_metrics_of_a_round(tmp_path):
    async with loopback(tmp_path) as local:
        a, b = local.site("a"), local.site("b")
        local.member("site", "asleep")
        local.fed.registry.change("site", "asleep", "suspend")
        await a.connect()
        await b.connect()
        run = await local.submit()
        for site in (a, b):
            order = await site.hear("assignment")
            await site.download(order.model_sha256)
            bad = {"num_bytes": 1} if site is b else {}
            await site.upload(order, update_bytes(1.0), **bad)
        shown = await local.ended(run)
        assert shown.state == "finished"
        status, text = await page(local, "/metrics")
        assert status == 200
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["foedus_rounds_total", "committed"] == 1
    assert samples["foedus_updates_total", "", "accepted"] == 1
    assert samples["foedus_updates_total", "LayoutMismatch", "rejected"] == 1
    assert samples["foedus_update_bytes_total", "up"] == len(update_bytes(1.0))
    assert samples["foedus_update_bytes_total", "down"] == 2 * order.model_bytes
    assert samples["foedus_sites", "active"] == 2
    assert samples["foedus_sites", "suspended"] == 1
    assert samples["foedus_sites", "connected"] == 2
    assert samples["foedus_site_last_seen_timestamp_seconds", "a"] > 1e9
    assert samples["foedus_certificate_expiry_timestamp_seconds", "asleep"] > 1e9
    assert samples["foedus_rpc_duration_seconds_count", "/foedus.v1.Transfer/Upload"] == 2
    for phase in ("collect", "aggregate"):  # this plan evaluates nothing
        assert samples["foedus_round_phase_duration_seconds_count", phase] == 1


@pytest.mark.parametrize("restarts", [2])
async def test_a_restart_knows_its_members(tmp_path, restarts):
    for _ in range(restarts):
        async with loopback(tmp_path) as local:
            if not any(member.role == "site" for member in local.fed.registry.members()):
                local.member("site", "a")
            text = (await page(local, "/metrics"))[1]
            assert 'foedus_certificate_expiry_timestamp_seconds{site="a"}' in text
            assert 'foedus_sites{state="active"} 1.0' in text
