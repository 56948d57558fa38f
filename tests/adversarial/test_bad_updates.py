"""What a broken or hostile site can upload: each refused where it should be, and the round goes on without it."""

from __future__ import annotations

import asyncio
import hashlib

import numpy as np
import pytest
from foedus.errors import (
    CorruptTransfer,
    MessageTooLarge,
    NotApproved,
    ProtocolError,
    StaleRound,
)
from foedus.protos.v1 import common_pb2, operations_pb2, transfer_pb2, transfer_pb2_grpc
from loopback import loopback, plan, typed, update_bytes

pytestmark = pytest.mark.adversarial

GOOD = update_bytes(2.0)


class Round:
    """A round with an honest site and a hostile one, both asked."""

    def __init__(self, local):
        self.local = local
        self.honest, self.hostile = local.site("honest"), local.site("hostile")

    async def begin(self, **changes):
        await self.honest.connect()
        await self.hostile.connect()
        self.run = await self.local.submit(plan(**changes))
        self.order = await self.hostile.hear("assignment")
        await self.honest.hear("assignment")
        return self

    async def finish(self):
        """The honest site uploads; the run as it ended, and the hostile site's participation."""
        assert (await self.honest.upload(self.order, GOOD)).accepted
        shown = await self.local.ended(self.run)
        parts = {p.site: p for p in shown.rounds[0].participations}
        assert parts["honest"].verdict == "accepted"
        return shown, parts["hostile"]

    async def went_on_without_it(self):
        """The model is exactly the honest site's, and nothing of the other's is left anywhere."""
        shown, part = await self.finish()
        assert shown.state == "finished"
        model = self.local.model(shown.last_sha256)
        np.testing.assert_array_equal(model.trainable_D, np.full(4, 2.0, np.float32))
        np.testing.assert_array_equal(model.counters_C, [3])
        assert list(self.local.fed.inbox.folder.rglob("*")) == []
        return part


def poisoned(value, where):
    values = np.frombuffer(GOOD[:24], np.float32).copy()
    values[where] = value
    return values.tobytes() + GOOD[24:]


@pytest.mark.parametrize(
    ("data", "changes", "code", "reason"),
    [
        (poisoned(np.nan, 0), {}, "InvalidUpdate", "nan in trainable tensor 'w'"),
        (poisoned(np.inf, 3), {}, "InvalidUpdate", "inf in trainable tensor 'w'"),
        (poisoned(-np.inf, 5), {}, "InvalidUpdate", "-inf in buffer tensor 'running'"),
        (GOOD[:-1], {}, "LayoutMismatch", "has 31 bytes, its layout needs 32"),
        (GOOD + b"x", {}, "LayoutMismatch", "has 33 bytes, its layout needs 32"),
        (GOOD, {"num_bytes": 2**64 - 1}, "LayoutMismatch", "its layout needs 32"),
        (GOOD, {"num_bytes": 0}, "LayoutMismatch", "has 0 bytes"),
        (GOOD, {"layout_sha256": "cd" * 32}, "LayoutMismatch", "layout is not the run's"),
        (GOOD, {"model_sha256": "cd" * 32}, "StaleRound", "starts from model cdcdcdcdcdcd"),
    ],
)
async def test_refused_for_good(tmp_path, data, changes, code, reason):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        receipt = await round.hostile.upload(round.order, data, **changes)
        assert (receipt.accepted, receipt.code) == (False, code)
        assert reason in receipt.reason
        # The decision stands: neither repeating it nor sending something better changes it.
        for again in (data, GOOD):
            assert await round.hostile.upload(round.order, again) == receipt
        part = await round.went_on_without_it()
        assert (part.verdict, part.code) == ("late" if code == "StaleRound" else "rejected", code)
        assert part.reason == receipt.reason
        assert part.num_examples == 0


HEADERS = [
    ({"num_examples": 2**60}, "num_examples is 1152921504606846976"),
    ({"round": 0}, "round is 0"),
    ({"round": 2**32 - 1}, "round is 4294967295"),
    ({"run": ""}, "run is ''"),
    ({"run": "../../etc"}, "run is '../../etc'"),
    ({"sha256": "xyz"}, "sha256 is 'xyz'"),
    ({"model_sha256": "AB" * 32}, "model_sha256"),
    ({"metrics": {"loss": float("nan")}}, "metric 'loss' is nan"),
    ({"metrics": {"loss": float("-inf")}}, "metric 'loss' is -inf"),
    ({"metrics": {f"m{n}": 0.0 for n in range(65)}}, "65 metrics were sent, at most 64"),
    ({"metrics": {"<script>": 0.0}}, "a metric's name is '<script>'"),
    ({"metrics": {"": 0.0}}, "a metric's name is ''"),
    ({"metrics": {"a" * 129: 0.0}}, "a metric's name"),
]


@pytest.mark.parametrize(("changes", "reason"), HEADERS, ids=[reason for _, reason in HEADERS])
async def test_headers_that_break_the_protocol_change_nothing(tmp_path, changes, reason):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        with pytest.raises(ProtocolError, match=reason.replace("(", r"\(")) as caught:
            await round.hostile.upload(round.order, GOOD, **changes)
        assert caught.value.code == "ProtocolError"
        assert (await round.hostile.upload(round.order, update_bytes(4.0))).accepted
        shown, part = await round.finish()
        assert part.verdict == "accepted"
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 3.0))


@pytest.mark.parametrize("changes", [{"run": "abcdef012345"}, {"round": 2}, {"round": 1_000_000}])
async def test_an_unknown_run_or_round_is_stale(tmp_path, changes):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        with pytest.raises(StaleRound, match="was not asked to train"):
            await round.hostile.upload(round.order, GOOD, **changes)
        assert (await round.hostile.upload(round.order, GOOD)).accepted


def header(round, data=GOOD, **changes):
    return transfer_pb2.UploadMessage(header=round.hostile.header(round.order, data, **changes))


def chunk(offset, data):
    return transfer_pb2.UploadMessage(chunk=common_pb2.Chunk(offset=offset, data=data))


BROKEN = {
    "more than announced": (lambda r: [header(r), chunk(0, GOOD + b"x")], ProtocolError, "more bytes came than the 32"),
    "more than announced, in pieces": (
        lambda r: [header(r), chunk(0, GOOD[:30]), chunk(30, b"123")],
        ProtocolError,
        "more bytes came than the 32",
    ),
    "truncated": (lambda r: [header(r), chunk(0, GOOD[:10])], CorruptTransfer, "ended after 10 of 32"),
    "nothing after the header": (lambda r: [header(r)], CorruptTransfer, "ended after 0 of 32"),
    "a gap": (lambda r: [header(r), chunk(0, GOOD[:8]), chunk(9, GOOD[9:])], ProtocolError, "at byte 9, expected 8"),
    "going back": (lambda r: [header(r), chunk(0, GOOD[:8]), chunk(0, GOOD)], ProtocolError, "at byte 0, expected 8"),
    "an offset beyond all": (lambda r: [header(r), chunk(2**64 - 1, b"x")], ProtocolError, "expected 0"),
    "an empty chunk": (lambda r: [header(r), chunk(0, b"")], ProtocolError, "empty"),
    "a flipped bit": (
        lambda r: [header(r), chunk(0, bytes([GOOD[0] ^ 1]) + GOOD[1:])],
        CorruptTransfer,
        "do not have the digest",
    ),
    "chunk before header": (lambda r: [chunk(0, GOOD)], ProtocolError, "begins with its header"),
    "nothing at all": (lambda r: [], ProtocolError, "begins with its header"),
    "an empty message": (lambda r: [transfer_pb2.UploadMessage()], ProtocolError, "begins with its header"),
    "a second header": (lambda r: [header(r), header(r)], ProtocolError, "after the header come chunks"),
    "a second header after a chunk": (
        lambda r: [header(r), chunk(0, GOOD[:8]), header(r)],
        ProtocolError,
        "after the header come chunks",
    ),
    "a message above the bound": (
        lambda r: [header(r), chunk(0, bytes(5 << 20))],
        MessageTooLarge,
        "larger than max",
    ),
}


@pytest.mark.parametrize("messages", BROKEN.values(), ids=BROKEN)
async def test_a_broken_stream_can_be_sent_again(tmp_path, messages):
    make, error, reason = messages
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        with pytest.raises(error, match=reason) as caught:
            await round.hostile.send(make(round))
        assert caught.value.code == error.__name__
        parts = (await local.show(round.run)).rounds[0].participations
        assert [p.verdict for p in parts] == ["asked", "asked"]
        start = await resume_offset(round)
        assert (await round.hostile.upload(round.order, GOOD, chunks=[(start, GOOD[start:])])).accepted
        shown, part = await round.finish()
        assert part.verdict == "accepted"
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 2.0))


async def resume_offset(round):
    """Where the server has the honest update, without sending any of it."""

    async def only_header():
        yield header(round)

    call = transfer_pb2_grpc.TransferStub(round.hostile.channel).Upload(only_header())
    reply = await call.read()
    call.cancel()
    return reply.resume_offset


async def test_an_interrupted_upload_resumes_and_keeps_no_corruption(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        with pytest.raises(CorruptTransfer):
            await round.hostile.send([header(round), chunk(0, GOOD[:20])])
        assert await resume_offset(round) == 20
        with pytest.raises(CorruptTransfer, match="digest"):
            await round.hostile.send([header(round), chunk(20, b"\xff" * 12)])
        assert await resume_offset(round) == 0
        assert (await round.hostile.upload(round.order, GOOD)).accepted


async def test_parts_of_different_updates_never_mix(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        other = update_bytes(8.0)
        with pytest.raises(CorruptTransfer):
            await round.hostile.send([header(round), chunk(0, GOOD[:20])])
        assert (await round.hostile.upload(round.order, other)).accepted
        shown, _ = await round.finish()
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 5.0))


async def test_a_site_whose_name_begins_like_anothers_leaves_its_parts_alone(tmp_path):
    async with loopback(tmp_path) as local:
        names = ("berlin", "berlin.mitte")
        short, long = (local.site(name) for name in names)
        for site in (short, long):
            await site.connect()
        await local.submit()
        order = await long.hear("assignment")
        head = transfer_pb2.UploadMessage(header=long.header(order, GOOD))
        with pytest.raises(CorruptTransfer):
            await long.send([head, chunk(0, GOOD[:20])])
        with pytest.raises(CorruptTransfer):
            await short.send([transfer_pb2.UploadMessage(header=short.header(order, GOOD)), chunk(0, GOOD[:4])])
        replies = await long.send([head, chunk(20, GOOD[20:])])
        assert replies[0].resume_offset == 20
        assert replies[-1].receipt.accepted


async def test_two_streams_at_once_the_older_gives_way(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        stub, queue = transfer_pb2_grpc.TransferStub(round.hostile.channel), asyncio.Queue()

        async def slow():
            while True:
                yield await queue.get()

        older = stub.Upload(slow())
        queue.put_nowait(header(round))
        assert (await older.read()).resume_offset == 0
        queue.put_nowait(chunk(0, GOOD[:8]))
        replies = await round.hostile.send([header(round), chunk(await resume_offset(round), GOOD[8:])])
        assert replies[-1].receipt.accepted
        queue.put_nowait(chunk(8, b"\xff" * 24))
        with pytest.raises(StaleRound, match="goes on in another stream"):
            await typed(older.read())
        shown, _ = await round.finish()
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 2.0))


async def test_repeating_an_accepted_update_is_harmless_and_replacing_it_impossible(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        for _ in range(3):
            assert (await round.hostile.upload(round.order, GOOD)).accepted
        receipt = await round.hostile.upload(round.order, update_bytes(9.0))
        assert (receipt.accepted, receipt.code) == (False, "StaleRound")
        assert (await round.went_on_without_it()).verdict == "accepted"


@pytest.mark.parametrize(("claimed", "expected"), [(2**53, 3.0), (1000, 3.0), (10, 3.0), (5, 2 + 2 / 3)])
async def test_a_boast_about_examples_weighs_the_cap(tmp_path, claimed, expected):
    """max_examples is 10: claiming 2**53 counts as claiming 10."""
    async with loopback(tmp_path) as local:
        round = await Round(local).begin(aggregator={"max_examples": 10})
        assert (await round.hostile.upload(round.order, update_bytes(4.0), num_examples=claimed)).accepted
        shown, _ = await round.finish()
        np.testing.assert_allclose(local.model(shown.last_sha256).trainable_D, expected, rtol=1e-6)


async def test_no_examples_anywhere_leaves_the_model_as_it_was(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        for site in (round.hostile, round.honest):
            assert (await site.upload(round.order, GOOD, num_examples=0)).accepted
        shown = await local.ended(round.run)
        assert shown.state == "failed"
        assert "example" in shown.reason
        assert (shown.round, shown.last_sha256) == (0, shown.initial_sha256)
        assert shown.rounds[0].model_sha256 == ""


async def test_a_site_without_examples_moves_nothing(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        assert (await round.hostile.upload(round.order, update_bytes(99.0, counter=77), num_examples=0)).accepted
        assert (await round.went_on_without_it()).num_examples == 0


async def test_an_update_for_a_stopped_run(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        await local.operator().ChangeRun(operations_pb2.ChangeRunRequest(run=round.run, action="stop"))
        receipt = await round.hostile.upload(round.order, GOOD)
        assert (receipt.accepted, receipt.code) == (False, "StaleRound")
        assert "is stopped" in receipt.reason
        assert (await local.show(round.run)).state == "stopped"


@pytest.mark.parametrize("action", ["suspend", "revoke"])
async def test_what_a_site_was_still_sending_when_it_was_cut_off_does_not_count(tmp_path, action):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        stub, queue = transfer_pb2_grpc.TransferStub(round.hostile.channel), asyncio.Queue()

        async def slow():
            while (message := await queue.get()) is not None:
                yield message

        call = stub.Upload(slow())
        queue.put_nowait(header(round))
        assert (await call.read()).resume_offset == 0
        await local.operator().ChangeSite(operations_pb2.ChangeSiteRequest(name="hostile", action=action))
        with pytest.raises(NotApproved):
            await round.hostile.hear("release")
        queue.put_nowait(chunk(0, GOOD))
        receipt = (await call.read()).receipt
        assert (receipt.accepted, receipt.code) == (False, "NotApproved")
        part = await round.went_on_without_it()
        assert (part.verdict, part.code) == ("rejected", "NotApproved")


async def test_the_quorum_decides_whether_a_round_survives_refusals(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin(cohort={"count": 2, "quorum": 2, "deadline_seconds": 60})
        await round.hostile.upload(round.order, poisoned(np.nan, 0))
        shown = await local.ended(round.run)
        assert shown.state == "failed"
        assert "0 updates arrived, the quorum is 2" in shown.reason
        assert "hostile rejected (InvalidUpdate" in shown.reason
        assert shown.last_sha256 == shown.initial_sha256


async def test_digest_of_the_whole_and_not_of_the_pieces(tmp_path):
    async with loopback(tmp_path) as local:
        round = await Round(local).begin()
        pieces = [(offset, GOOD[offset : offset + 1]) for offset in range(len(GOOD))]
        receipt = await round.hostile.upload(round.order, GOOD, chunks=pieces, sha256=hashlib.sha256(GOOD).hexdigest())
        assert receipt.accepted
