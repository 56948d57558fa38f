"""What an operator's broken client can submit: refused typed, leaving no run and no file."""

from __future__ import annotations

import asyncio
import hashlib
import struct

import numpy as np
import pytest
from foedus.errors import ConfigError, CorruptTransfer, MessageTooLarge, NotFound, ProtocolError, RunStateError
from foedus.layout import layout_of
from foedus.modelfile import Model, write_model
from foedus.protos.v1 import common_pb2, operations_pb2
from loopback import loopback, plan, toy_model, typed

pytestmark = pytest.mark.adversarial


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "toy", toy_model()).path.read_bytes()


def header(model, **changes):
    values = {
        "plan_json": plan().model_dump_json(),
        "model_bytes": len(model),
        "model_sha256": hashlib.sha256(model).hexdigest(),
        **changes,
    }
    return operations_pb2.SubmitMessage(header=operations_pb2.SubmitHeader(**values))


def chunk(offset, data):
    return operations_pb2.SubmitMessage(chunk=common_pb2.Chunk(offset=offset, data=data))


def whole(model, **changes):
    return [header(model, **changes), chunk(0, model)]


def nan_model(tmp):
    arrays = {"w": np.array([1, np.nan], np.float32)}
    return write_model(tmp / "nan", Model.of(layout_of(arrays), arrays)).path.read_bytes()


HUGE_HEADER = struct.pack("<Q", 2**62) + b"{}"

CASES = {
    "no header": (lambda m, _: [chunk(0, m)], ProtocolError, "begins with its header"),
    "nothing": (lambda m, _: [], ProtocolError, "begins with its header"),
    "no plan": (lambda m, _: whole(m, plan_json=""), ConfigError, "the plan"),
    "malformed plan": (lambda m, _: whole(m, plan_json="{'a'"), ConfigError, "Invalid JSON"),
    "unknown key": (
        lambda m, _: whole(m, plan_json=plan().model_dump_json().replace('"rounds"', '"round"')),
        ConfigError,
        "rounds is missing|round is not a known key",
    ),
    "impossible plan": (
        lambda m, _: whole(m, plan_json=plan().model_dump_json().replace('"rounds":1', '"rounds":0')),
        ConfigError,
        "rounds: Input should be greater than 0",
    ),
    "huge plan": (lambda m, _: whole(m, plan_json=" " * (300 << 10)), MessageTooLarge, "at most 262144"),
    "bad digest": (lambda m, _: whole(m, model_sha256="../x"), ProtocolError, "model_sha256 is '../x'"),
    "wrong digest": (lambda m, _: whole(m, model_sha256="ab" * 32), CorruptTransfer, "do not have the digest"),
    "declared larger": (lambda m, _: whole(m, model_bytes=len(m) + 1), CorruptTransfer, "ended after"),
    "declared smaller": (lambda m, _: whole(m, model_bytes=len(m) - 1), CorruptTransfer, "does not fit"),
    "declared beyond all bounds": (lambda m, _: whole(m, model_bytes=2**64 - 1), MessageTooLarge, "at most 100000"),
    "a gap": (lambda m, _: [header(m), chunk(0, m[:9]), chunk(10, m[10:])], CorruptTransfer, "byte 10 does not fit"),
    "an empty chunk": (lambda m, _: [header(m), chunk(0, b""), chunk(0, m)], CorruptTransfer, "does not fit"),
    "a second header": (lambda m, _: [header(m), header(m)], CorruptTransfer, "ended after 0"),
    "a message above the bound": (lambda m, _: [header(m), chunk(0, bytes(5 << 20))], MessageTooLarge, "larger than"),
    "not safetensors": (lambda m, _: whole(b"PK\x03\x04" * 9), ConfigError, "initial model is not a safetensors file"),
    "a pickle": (lambda m, _: whole(b"\x80\x04\x95" + bytes(50)), ConfigError, "is not a safetensors file"),
    "empty": (lambda m, _: [header(b"")], ConfigError, "is not a safetensors file"),
    "huge header": (lambda m, _: whole(HUGE_HEADER), ConfigError, "is not a safetensors file"),
    "cut off": (lambda m, _: whole(m[:-1]), ConfigError, "truncated"),
    "trailing": (lambda m, _: whole(m + b"x"), ConfigError, "trailing"),
    "NaN": (lambda m, tmp: whole(nan_model(tmp)), ConfigError, "not finite in tensor 'w'"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_refused(tmp_path, model, case):
    make, error, reason = case
    async with loopback(tmp_path, limits={"max_model_bytes": 100_000}) as local:
        stub = local.operator()
        with pytest.raises(error, match=reason) as caught:
            await typed(stub.SubmitRun(iter(make(model, tmp_path))))
        assert caught.value.code == error.__name__
        assert str(tmp_path) not in str(caught.value)
        assert list((await stub.ListRuns(operations_pb2.ListRunsRequest())).runs) == []
        assert list(local.fed.blobs.folder.iterdir()) == []
        assert (await stub.SubmitRun(iter(whole(model)))).state == "queued"


async def test_an_unfinished_submission_leaves_nothing(tmp_path, model):
    async with loopback(tmp_path) as local:
        call = local.operator().SubmitRun()
        await call.write(header(model))
        await call.write(chunk(0, model[:10]))
        call.cancel()
        with pytest.raises(CorruptTransfer):
            await typed(local.operator().SubmitRun(iter([header(model), chunk(0, model[:10])])))
        while list(local.fed.blobs.folder.iterdir()):
            await asyncio.sleep(0.01)


async def test_wrong_questions(tmp_path):
    async with loopback(tmp_path) as local:
        stub = local.operator()
        run = await local.submit()
        for request, error, reason in [
            (stub.ShowRun(operations_pb2.RunRequest(run="zz")), NotFound, "no run"),
            (stub.ShowRun(operations_pb2.RunRequest()), NotFound, "no run"),
            (stub.ShowRun(operations_pb2.RunRequest(run="x" * 100_000)), NotFound, "no run"),
            (stub.ChangeRun(operations_pb2.ChangeRunRequest(run=run, action="explode")), RunStateError, "not one of"),
            (stub.ChangeRun(operations_pb2.ChangeRunRequest(run=run, action="resume")), RunStateError, "is running"),
            (stub.ChangeRun(operations_pb2.ChangeRunRequest(run="zz", action="stop")), NotFound, "no run"),
            (stub.ChangeSite(operations_pb2.ChangeSiteRequest(name="x", action="revoke")), NotFound, "no site 'x'"),
            (stub.ChangeSite(operations_pb2.ChangeSiteRequest(name="x", action="y")), RunStateError, "not one of"),
            (
                stub.Invite(operations_pb2.InviteRequest(name="a", role="server", lifetime_seconds=9)),
                ConfigError,
                "not one of",
            ),
            (
                stub.Invite(operations_pb2.InviteRequest(name="A B", role="site", lifetime_seconds=9)),
                ConfigError,
                "name",
            ),
            (stub.Invite(operations_pb2.InviteRequest(name="a", role="site")), ConfigError, "cannot last 0 s"),
            (
                stub.Invite(operations_pb2.InviteRequest(name="a", role="site", lifetime_seconds=float("nan"))),
                ConfigError,
                "cannot last nan s",
            ),
            (
                stub.Invite(operations_pb2.InviteRequest(name="a", role="site", lifetime_seconds=1e12)),
                ConfigError,
                "at most",
            ),
            (
                stub.Invite(operations_pb2.InviteRequest(name="operator", role="operator", lifetime_seconds=9)),
                RunStateError,
                "already is",
            ),
        ]:
            with pytest.raises(error, match=reason):
                await typed(request)
        for which, error in (("best", NotFound), ("worst", ConfigError), ("", ConfigError)):
            call = stub.FetchModel(operations_pb2.FetchModelRequest(run=run, which=which))
            with pytest.raises(error):
                await typed(call.read())
