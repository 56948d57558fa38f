"""The doctor measures a site's clock against the real server's."""

from __future__ import annotations

import time

import grpc
import pytest
from foedus.client_sdk.doctor import PROXIES, examine
from foedus.clock import ManualClock
from foedus.protos.status import TIME_KEY
from foedus.protos.v1 import operations_pb2, transfer_pb2, transfer_pb2_grpc
from loopback import loopback
from real_sites import enrolled


@pytest.mark.parametrize(
    ("wrong_seconds", "ok", "side"), [(0, True, ""), (600, False, "ahead of"), (-200, False, "behind")]
)
async def test_a_wrong_clock_is_measured(tmp_path, monkeypatch, wrong_seconds, ok, side):
    """-200 s is within what a certificate is backdated by, which is all that could be seen without asking."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a")
        findings = await examine(home, ManualClock(time.time() + wrong_seconds))
    found = {finding.name: finding for finding in findings}
    assert found["server"].ok
    clock = found["clock"]
    assert (clock.ok, bool(clock.mend)) == (ok, not ok), clock
    assert side in clock.detail
    assert "give or take" in clock.detail
    assert abs(abs(wrong_seconds) - float(clock.detail.split()[0])) < 60


async def test_admitted_calls_tell_the_time_and_errors_keep_their_code(tmp_path):
    async with loopback(tmp_path) as local:
        call = local.operator().Status(operations_pb2.StatusRequest())
        await call
        assert abs(float(dict(await call.trailing_metadata())[TIME_KEY]) - time.time()) < 60
        stub = transfer_pb2_grpc.TransferStub(local.open(local.member("site", "a")))
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.Download(transfer_pb2.DownloadRequest(sha256="0" * 64)).read()
        assert dict(failure.value.trailing_metadata())["foedus-code"] == "AccessDenied"
