import grpc
import pytest
from foedus import errors
from foedus.protos.status import from_rpc_error, to_status
from hypothesis import given
from hypothesis import strategies as st


def aio_error(status, details="", metadata=()):
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details)


@given(st.sampled_from(sorted(errors.error_classes())), st.text(max_size=200), st.text(max_size=200))
def test_what_the_server_raises_the_sdk_raises(name, message, hint):
    raised = errors.error_classes()[name](message, hint=hint)
    status, details, metadata = to_status(raised)
    for key, value in metadata:
        assert key == key.lower()
        assert all(0x20 <= ord(character) < 0x7F for character in value)
    got = from_rpc_error(aio_error(status, details, metadata))
    assert type(got) is type(raised)
    assert (str(got), got.hint) == (message, hint)


def test_every_error_has_a_status_of_grpc():
    for kind in errors.error_classes().values():
        assert to_status(kind("x"))[0].name == kind.grpc_status


def test_long_messages_are_cut():
    _, details, metadata = to_status(errors.ConfigError("m" * 100_000, hint="ö" * 100_000))
    assert len(details) == 2000
    assert sum(len(value) for _, value in metadata) < 4000


@pytest.mark.parametrize(
    ("status", "details", "expected"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; connection refused", errors.ServerUnreachable),
        ("UNAVAILABLE", "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED", errors.PeerUntrusted),
        ("UNAVAILABLE", "Peer name foedus.server is not in peer certificate", errors.PeerUntrusted),
        ("UNAVAILABLE", "UNAUTHENTICATED: Hostname Verification Check failed.", errors.PeerUntrusted),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", errors.ServerUnreachable),
        ("CANCELLED", "Locally cancelled", errors.ConnectionFailed),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (5 vs. 4)", errors.MessageTooLarge),
        ("RESOURCE_EXHAUSTED", "Concurrent RPC limit exceeded!", errors.RateLimited),
        ("UNIMPLEMENTED", "Method not found!", errors.VersionMismatch),
        ("NOT_FOUND", "", errors.NotFound),
        ("PERMISSION_DENIED", "", errors.AccessDenied),
        ("INTERNAL", "Received RST_STREAM", errors.FoedusError),
        ("UNKNOWN", "Unexpected <class 'KeyError'>", errors.FoedusError),
    ],
)
def test_failures_of_the_transport_itself(status, details, expected):
    got = from_rpc_error(aio_error(grpc.StatusCode[status], details))
    assert type(got) is expected
    assert str(got)


def test_a_code_of_a_newer_server_is_read_by_its_status():
    metadata = (("foedus-code", "InventedLater"), ("foedus-hint", "do%20it"))
    got = from_rpc_error(aio_error(grpc.StatusCode.NOT_FOUND, "gone", metadata))
    assert (type(got), str(got), got.hint) == (errors.NotFound, "gone", "do it")


@pytest.mark.adversarial
def test_a_code_is_only_ever_one_of_our_errors():
    got = from_rpc_error(aio_error(grpc.StatusCode.NOT_FOUND, "x", (("foedus-code", "KeyboardInterrupt"),)))
    assert type(got) is errors.NotFound


def test_an_error_that_is_not_a_call():
    assert type(from_rpc_error(grpc.RpcError("bare"))) is errors.FoedusError
