"""The bytes of a few messages, written by hand from the protobuf encoding rules, not by the code under test."""

from __future__ import annotations

import struct

import pytest
from foedus.protos.v1 import common_pb2, enrolment_pb2, operations_pb2, session_pb2, transfer_pb2
from google.protobuf.message import Message


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def double(tag: int, value: float) -> bytes:
    return varint(tag << 3 | 1) + struct.pack("<d", value)


def text(tag: int, value: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(value)) + value


WORK = common_pb2.Work(run="r1", round=300, phase=common_pb2.PHASE_EVALUATE)
WORK_BYTES = text(1, b"r1") + number(2, 300) + number(3, 2)
DIGEST = "ab" * 32

GOLDEN: list[tuple[str, Message, bytes]] = [
    ("work", WORK, bytes.fromhex("0a 02 72 31 10 ac 02 18 02")),
    ("chunk", common_pb2.Chunk(offset=1 << 40, data=b"\x00\xff"), number(1, 1 << 40) + text(2, b"\x00\xff")),
    ("join", enrolment_pb2.JoinRequest(secret="s", request_pem="p"), text(1, b"s") + text(2, b"p")),
    (
        "hello",
        session_pb2.SiteMessage(
            hello=session_pb2.Hello(
                version="1.2.3",
                tasks=[session_pb2.TaskOffer(name="heart", code_sha256=DIGEST)],
                unix_seconds=1.5,
            )
        ),
        text(1, text(1, b"1.2.3") + text(2, text(1, b"heart") + text(2, DIGEST.encode())) + double(3, 1.5)),
    ),
    (
        "heartbeat",
        session_pb2.SiteMessage(heartbeat=session_pb2.Heartbeat(work=WORK, progress=7)),
        text(2, text(1, WORK_BYTES) + number(2, 7)),
    ),
    (
        "refusal",
        session_pb2.SiteMessage(refusal=session_pb2.Refusal(work=WORK, code="SiteVeto", reason="night")),
        text(3, text(1, WORK_BYTES) + text(2, b"SiteVeto") + text(3, b"night")),
    ),
    (
        "assignment",
        session_pb2.ServerMessage(
            assignment=session_pb2.Assignment(
                work=WORK,
                run_name="n",
                task="heart",
                model_sha256=DIGEST,
                model_bytes=112,
                layout_sha256=DIGEST,
                training=session_pb2.LocalTraining(epochs=1, batch_size=16, optimizer="sgd", learning_rate=0.05),
                cohort_size=4,
                rounds=30,
                deadline_seconds=60.0,
                seed=(1 << 63) + 1,
            )
        ),
        text(
            2,
            text(1, WORK_BYTES)
            + text(2, b"n")
            + text(3, b"heart")
            + text(4, DIGEST.encode())
            + number(5, 112)
            + text(6, DIGEST.encode())
            + text(7, number(1, 1) + number(3, 16) + text(4, b"sgd") + double(5, 0.05))
            + number(8, 4)
            + number(9, 30)
            + double(10, 60.0)
            + number(11, (1 << 63) + 1),
        ),
    ),
    (
        "release",
        session_pb2.ServerMessage(release=session_pb2.Release(work=WORK, outcome=session_pb2.OUTCOME_LATE, reason="x")),
        text(3, text(1, WORK_BYTES) + number(2, 3) + text(3, b"x")),
    ),
    (
        "upload header",
        transfer_pb2.UploadMessage(
            header=transfer_pb2.UploadHeader(
                run="r1",
                round=2,
                model_sha256="m",
                layout_sha256="l",
                num_bytes=56,
                sha256="s",
                num_examples=200,
                num_steps=13,
                metrics={"loss": 0.25},
            )
        ),
        text(
            1,
            text(1, b"r1")
            + number(2, 2)
            + text(3, b"m")
            + text(4, b"l")
            + number(5, 56)
            + text(6, b"s")
            + number(7, 200)
            + number(8, 13)
            + text(9, text(1, b"loss") + double(2, 0.25)),
        ),
    ),
    (
        "question",
        session_pb2.ServerMessage(
            question=session_pb2.Question(
                work=common_pb2.Work(run="q1", round=1, phase=common_pb2.PHASE_QUERY), query_json="{}", cohort_size=300
            )
        ),
        text(5, text(1, text(1, b"q1") + number(2, 1) + number(3, 3)) + text(2, b"{}") + number(3, 300)),
    ),
    (
        "masked words",
        session_pb2.SiteMessage(secure=session_pb2.SecureMessage(work=WORK, body=b"\x07", words=b"\x00\xff")),
        text(5, text(1, WORK_BYTES) + text(2, b"\x07") + text(3, b"\x00\xff")),
    ),
    (
        "query",
        operations_pb2.Query(id="q1", state="failed", sites=[operations_pb2.AskedSite(site="a", verdict="refused")]),
        text(1, b"q1") + text(3, b"failed") + text(9, text(1, b"a") + text(2, b"refused")),
    ),
    # A member of a oneof is sent even when it is zero: offset 0 means "from the beginning".
    ("resume at zero", transfer_pb2.UploadReply(resume_offset=0), number(1, 0)),
    (
        "receipt",
        transfer_pb2.UploadReply(receipt=transfer_pb2.Receipt(accepted=True)),
        text(2, number(1, 1)),
    ),
]


@pytest.mark.parametrize(("message", "golden"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN])
def test_bytes_are_golden_both_ways(message: Message, golden: bytes) -> None:
    assert message.SerializeToString(deterministic=True) == golden
    assert type(message).FromString(golden) == message


def test_a_field_from_a_newer_version_is_carried_and_ignored() -> None:
    newer = WORK_BYTES + text(999, b"something new")
    work = common_pb2.Work.FromString(newer)
    assert (work.run, work.round, work.phase) == ("r1", 300, common_pb2.PHASE_EVALUATE)
    assert work.SerializeToString(deterministic=True) == newer
