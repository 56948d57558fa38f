"""Whatever bytes come: a value, or the one typed error that the decoder promises."""

from __future__ import annotations

import base64
import json
import math
import zlib
from contextlib import suppress

import grpc
import pytest
from foedus.errors import ConfigError, FoedusError, ProtocolError
from foedus.privacy.analytics.query import MAX_COUNTERS
from foedus.privacy.secagg.prg import Ring
from foedus.protos import wire
from foedus.protos.invitation import PREFIX, Invitation
from foedus.protos.status import CODE_KEY, HINT_KEY, from_rpc_error, to_status
from foedus.protos.v1 import common_pb2, session_pb2, transfer_pb2
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

text = st.text(max_size=20)
short = st.sampled_from(["", "a", "toy", "../../etc/passwd", "a/b", "\x00", "-x", "a" * 129, "ab" * 32, "AB" * 32])
number = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 10**6, 10**6 + 1]))
large = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**53, 2**53 + 1, 2**60, 2**64 - 1]))
floats = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 1e308])
metrics = st.dictionaries(short | text, floats, max_size=5)
works = st.builds(common_pb2.Work, run=short | text, round=number, phase=st.integers(0, 4))
site_messages = st.one_of(
    st.builds(
        lambda version, tasks, seconds: session_pb2.SiteMessage(
            hello=session_pb2.Hello(version=version, tasks=tasks, unix_seconds=seconds)
        ),
        short | text,
        st.lists(st.builds(session_pb2.TaskOffer, name=short | text, code_sha256=short | text), max_size=4),
        floats,
    ),
    st.builds(
        lambda work, progress: session_pb2.SiteMessage(heartbeat=session_pb2.Heartbeat(work=work, progress=progress)),
        works | st.none(),
        large,
    ),
    st.builds(
        lambda work, code, reason: session_pb2.SiteMessage(
            refusal=session_pb2.Refusal(work=work, code=code, reason=reason)
        ),
        works,
        short | text,
        text,
    ),
    st.builds(
        lambda work, sha, examples, values: session_pb2.SiteMessage(
            evaluation=session_pb2.Evaluation(work=work, model_sha256=sha, num_examples=examples, metrics=values)
        ),
        works,
        short,
        large,
        metrics,
    ),
)
secures = st.builds(session_pb2.SecureMessage, work=works, body=st.binary(max_size=9), words=st.binary(max_size=9))
site_messages |= st.builds(lambda secure: session_pb2.SiteMessage(secure=secure), secures)
headers = st.builds(
    transfer_pb2.UploadHeader,
    run=short | text,
    round=number,
    model_sha256=short,
    layout_sha256=short,
    num_bytes=large,
    sha256=short,
    num_examples=large,
    num_steps=large,
    metrics=metrics,
)
trainings = st.builds(
    session_pb2.LocalTraining,
    epochs=number,
    steps=number,
    batch_size=number,
    optimizer=st.sampled_from(["sgd", "adam", "adamw", "", "lbfgs"]),
    learning_rate=floats,
    momentum=floats,
    weight_decay=floats,
    proximal_mu=floats,
    max_seconds=floats,
)
server_messages = st.one_of(
    st.builds(
        lambda version, name, seconds, beat: session_pb2.ServerMessage(
            welcome=session_pb2.Welcome(version=version, federation=name, unix_seconds=seconds, heartbeat_seconds=beat)
        ),
        text,
        text,
        floats,
        floats,
    ),
    st.builds(
        lambda work, task, sha, training: session_pb2.ServerMessage(
            assignment=session_pb2.Assignment(
                work=work, task=task, model_sha256=sha, layout_sha256=sha, training=training
            )
        ),
        works,
        short | text,
        short,
        trainings,
    ),
    st.builds(
        lambda work, outcome, reason: session_pb2.ServerMessage(
            release=session_pb2.Release(work=work, outcome=outcome, reason=reason)
        ),
        works,
        st.integers(0, 6),
        text,
    ),
)
server_messages |= st.builds(lambda secure: session_pb2.ServerMessage(secure=secure), secures)
server_messages |= st.builds(
    lambda work, query, size: session_pb2.ServerMessage(
        question=session_pb2.Question(work=work, query_json=query, cohort_size=size)
    ),
    works,
    text,
    number,
)


def only_protocol_errors(decode, *values):
    with suppress(ProtocolError):
        return decode(*values)
    return None


def decoded(kind, data, decode):
    with suppress(DecodeError):  # gRPC answers it before any of our code runs
        only_protocol_errors(decode, kind.FromString(data))


@pytest.mark.adversarial
@given(site_messages)
def test_what_a_site_says_is_bounded(message):
    found = only_protocol_errors(wire.site_message_from_pb, message)
    if found is not None:
        assert wire.site_message_from_pb(wire.site_message_to_pb(found)) == found
        for name, value in dict(getattr(found, "metrics", {})).items():
            assert math.isfinite(value)
            assert "/" not in name
        assert getattr(found, "num_examples", 0) <= wire.MAX_EXAMPLES


@pytest.mark.adversarial
@given(headers)
@example(transfer_pb2.UploadHeader(run="a", round=1, num_examples=2**60))
def test_what_an_upload_claims_is_bounded(message):
    found = only_protocol_errors(wire.upload_header_from_pb, message)
    if found is not None:
        assert found.num_examples <= wire.MAX_EXAMPLES
        assert found.num_steps < 2**63  # what the database can hold
        assert set(found.run) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert wire.upload_header_from_pb(wire.upload_header_to_pb(found)) == found


@pytest.mark.adversarial
@given(server_messages)
def test_what_a_server_says_is_bounded(message):
    found = only_protocol_errors(wire.server_message_from_pb, message)
    if found is not None:
        assert wire.server_message_from_pb(wire.server_message_to_pb(found)) == found


QUESTION = common_pb2.Work(run="q", round=1, phase=common_pb2.PHASE_QUERY)
TRAINING = common_pb2.Work(run="r", round=1, phase=common_pb2.PHASE_TRAIN)


@pytest.mark.adversarial
@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            session_pb2.ServerMessage(question=session_pb2.Question(work=TRAINING)),
            "a question is of the phase train, expected query",
        ),
        (
            session_pb2.ServerMessage(assignment=session_pb2.Assignment(work=QUESTION)),
            "an assignment is of the phase query",
        ),
        (
            session_pb2.ServerMessage(
                question=session_pb2.Question(work=QUESTION, query_json="x" * (wire.MAX_QUERY_BYTES + 1))
            ),
            "expected at most 262144",
        ),
        (
            session_pb2.ServerMessage(
                secure=session_pb2.SecureMessage(work=QUESTION, words=bytes(wire.MAX_WORDS_BYTES + 1))
            ),
            "the list of masked words of a query has 1048577 bytes",
        ),
    ],
)
def test_what_a_question_may_be(message, words):
    with pytest.raises(ProtocolError, match=words):
        wire.server_message_from_pb(message)


def test_a_message_holds_the_most_counters_that_there_can_be():
    assert MAX_COUNTERS * Ring.W64.word_bytes == wire.MAX_WORDS_BYTES


@pytest.mark.adversarial
@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes(data):
    for kind, decode in (
        (session_pb2.SiteMessage, wire.site_message_from_pb),
        (transfer_pb2.UploadMessage, lambda message: wire.upload_header_from_pb(message.header)),
    ):
        decoded(kind, data, decode)


@pytest.mark.adversarial
@settings(max_examples=300)
@given(site_messages, st.data())
def test_mutated_messages(message, data):
    raw = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    decoded(session_pb2.SiteMessage, bytes(raw), wire.site_message_from_pb)


@pytest.mark.adversarial
@given(st.text(), st.booleans(), st.text(max_size=5))
def test_receipts_and_reasons_cannot_write_on_a_terminal(reason, accepted, code):
    receipt = wire.receipt_from_pb(transfer_pb2.Receipt(accepted=accepted, code=code, reason=reason))
    assert (receipt.reason + receipt.code).isprintable() or not receipt.reason + receipt.code
    assert len(receipt.reason) <= wire.MAX_REASON_LENGTH


def packed(values):
    content = values if isinstance(values, bytes) else json.dumps(values).encode()
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(content)).rstrip(b"=").decode()


fields = st.fixed_dictionaries(
    {
        "address": st.just("fed.example.org:8443") | text,
        "name": text,
        "role": st.sampled_from(["site", "operator", "server", ""]),
        "authority": text,
        "secret": text,
        "expires": st.integers() | st.floats() | st.booleans() | text,
    }
)
FIELDS = {"address": "a.example:1", "name": "a", "role": "site", "authority": "x", "secret": "s"}


@pytest.mark.adversarial
@settings(max_examples=200)
@given(st.one_of(st.text(), st.text().map(PREFIX.__add__), st.binary().map(packed), fields.map(packed)))
@example(packed({**FIELDS, "expires": 10**400}))
@example(packed({**FIELDS, "expires": math.nan}))
@example(packed({**FIELDS, "expires": True}))
@example(packed(b"[" * 30_000))
@example(packed(b" " * 10_000_000))
@example(PREFIX + "ÄÖÜ")
@example(PREFIX + "A" * 10_000)
def test_invitations(line):
    with suppress(ConfigError):
        found = Invitation.decode(line)
        assert math.isfinite(found.expires)
        assert Invitation.decode(found.encode()) == found


class Rpc(grpc.RpcError):
    def __init__(self, code, details, metadata):
        self._values = code, details, metadata

    def code(self):
        return self._values[0]

    def details(self):
        return self._values[1]

    def trailing_metadata(self):
        return self._values[2]


@pytest.mark.adversarial
@given(
    st.sampled_from([*grpc.StatusCode, None]),
    st.none() | st.text(),
    st.none()
    | st.lists(
        st.tuples(
            st.sampled_from([CODE_KEY, HINT_KEY, "other"]),
            st.text() | st.binary() | st.sampled_from(["StaleRound", "FoedusError", "Exception", "SystemExit", "%zz"]),
        )
    ),
)
def test_any_status_is_an_error_of_ours(code, details, metadata):
    error = from_rpc_error(Rpc(code, details, metadata))
    assert isinstance(error, FoedusError)
    status, message, trailing = to_status(error)
    assert isinstance(status, grpc.StatusCode)
    assert len(message) <= 2000
    assert all(value.isascii() for _, value in trailing)
