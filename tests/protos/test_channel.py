import time
from contextlib import asynccontextmanager

import grpc
import pytest
from foedus.errors import ConfigError, MessageTooLarge, NotApproved, PeerUntrusted, ServerUnreachable
from foedus.privacy import anonymous
from foedus.privacy import certificates as c
from foedus.privacy.identity import Identity
from foedus.protos import channel as ch
from foedus.protos.status import from_rpc_error, to_status

DAY = 86_400.0
METHOD = "/foedus.test/Echo"


class House:
    """A federation's authority with whatever certificates a test needs."""

    def __init__(self):
        self.now = time.time()
        self.key, self.pem = c.new_authority("hearts", self.now - 10 * DAY, 100 * DAY)

    def certify(self, role, name="berlin", age=0.0, lifetime=DAY, **options):
        key = c.new_key_pem()
        identity, request = Identity("hearts", role, name), c.new_request(key, name)
        return key, c.issue(self.key, self.pem, request, identity, self.now - age, lifetime, **options)


@pytest.fixture(scope="module")
def house():
    return House()


async def answer(request, context):
    """Echo; ``fail`` raises; ``who`` tells the caller's identity and whether it is believed."""
    if request == b"fail":
        status, message, metadata = to_status(NotApproved("ask Ünal", hint="wait — 100 %"))
        await context.abort(status, message, metadata)
    if request == b"who":
        return context.auth_context()["x509_pem_cert"][0]
    return request


@asynccontextmanager
async def serving(credentials, roots):
    server = grpc.aio.server(options=ch.SERVER_OPTIONS)
    echo = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("foedus.test", {"Echo": echo}),))
    key, certificate = credentials
    port = server.add_secure_port(
        "127.0.0.1:0",
        grpc.ssl_server_credentials([(key, certificate)], root_certificates=roots, require_client_auth=True),
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def call(address, authority_pem, credentials, request=b"hello"):
    key, certificate = credentials
    async with ch.secure_channel(
        address, authority_pem=authority_pem, key_pem=key, certificate_pem=certificate
    ) as channel:
        return await channel.unary_unary(METHOD)(request, timeout=20)


async def refused(*args):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(*args)
    return from_rpc_error(caught.value)


def test_both_sides_mean_the_same_server_name():
    assert ch.SERVER_NAME == c.SERVER_NAME


async def test_a_site_calls_the_server_by_any_address(house):
    # The certificate does not name 127.0.0.1: the pinned authority is what is trusted.
    server = house.certify("server", "main", hostnames=["fed.example.org"])
    async with serving(server, house.pem) as address:
        assert await call(address, house.pem, house.certify("site")) == b"hello"
        assert await call(address, house.pem, house.certify("operator", "ada")) == b"hello"


async def test_the_server_sees_the_certificate_of_its_caller(house):
    site = house.certify("site")
    async with serving(house.certify("server", "main"), house.pem) as address:
        seen = await call(address, house.pem, site, b"who")
    assert c.verify_issued(seen, house.pem)
    assert c.read_identity(seen) == Identity("hearts", "site", "berlin")


async def test_errors_arrive_typed_with_their_hint(house):
    async with serving(house.certify("server", "main"), house.pem) as address:
        error = await refused(address, house.pem, house.certify("site"), b"fail")
    assert (type(error), str(error), error.hint) == (NotApproved, "ask Ünal", "wait — 100 %")


async def test_messages_up_to_the_bound_pass_and_larger_ones_do_not(house):
    async with serving(house.certify("server", "main"), house.pem) as address:
        site = house.certify("site")
        largest = b"x" * ch.MAX_MESSAGE_BYTES
        assert len(await call(address, house.pem, site, largest)) == ch.MAX_MESSAGE_BYTES
        assert type(await refused(address, house.pem, site, largest + b"x")) is MessageTooLarge


@pytest.mark.adversarial
async def test_a_site_cannot_pose_as_the_server(house):
    async with serving(house.certify("site"), house.pem) as address:
        error = await refused(address, house.pem, house.certify("site", "paris"))
    assert type(error) is PeerUntrusted


@pytest.mark.adversarial
async def test_even_with_the_servers_name_a_client_certificate_does_not_serve(house, monkeypatch):
    """The usage alone must stop it, should a name ever slip into a site's certificate."""
    monkeypatch.setitem(c._USAGE, "server", c._USAGE["site"])
    misissued = house.certify("server", "main")
    monkeypatch.undo()
    async with serving(misissued, house.pem) as address:
        assert type(await refused(address, house.pem, house.certify("site"))) is PeerUntrusted


@pytest.mark.adversarial
async def test_even_with_the_servers_usage_a_site_has_not_the_servers_name(house, monkeypatch):
    """The name alone must stop it, should the usage ever slip into a site's certificate."""
    monkeypatch.setitem(c._USAGE, "site", c._USAGE["server"])
    misissued = house.certify("site")
    monkeypatch.undo()
    async with serving(misissued, house.pem) as address:
        error = await refused(address, house.pem, house.certify("site", "paris"))
    assert type(error) is PeerUntrusted


@pytest.mark.adversarial
async def test_the_servers_certificate_does_not_call(house):
    server = house.certify("server", "main")
    async with serving(server, house.pem) as address:
        assert isinstance(await refused(address, house.pem, server), PeerUntrusted | ServerUnreachable)


@pytest.mark.adversarial
async def test_another_federations_server_is_refused(house):
    other = House()
    async with serving(other.certify("server", "main"), other.pem + house.pem) as address:
        assert type(await refused(address, house.pem, house.certify("site"))) is PeerUntrusted


@pytest.mark.adversarial
@pytest.mark.parametrize("forger", ["stranger", "expired", "self-signed"])
async def test_callers_without_a_valid_certificate_are_refused(house, forger):
    if forger == "stranger":
        caller = House().certify("site")
    elif forger == "expired":
        caller = house.certify("site", age=2 * DAY)
    else:
        caller = c.new_authority("hearts", house.now, DAY)
    async with serving(house.certify("server", "main"), house.pem) as address:
        error = await refused(address, house.pem, caller)
    # In TLS 1.3 a server that refuses a client's certificate just hangs up.
    assert isinstance(error, PeerUntrusted | ServerUnreachable)
    if forger != "self-signed":
        assert "expired or revoked" in error.hint


@pytest.mark.adversarial
async def test_a_caller_without_any_certificate_is_refused(house):
    async with serving(house.certify("server", "main"), house.pem) as address:
        credentials = grpc.ssl_channel_credentials(house.pem)
        async with grpc.aio.secure_channel(address, credentials, options=list(ch.CHANNEL_OPTIONS)) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(METHOD)(b"hello", timeout=20)


@pytest.mark.adversarial
async def test_an_anonymous_caller_connects_but_its_claims_are_not_believed(house):
    roots = house.pem + anonymous.anonymous_authority_pem()
    honest = anonymous.anonymous_certificate(house.now)
    key = c.new_key_pem()
    liar = (
        key,
        c.issue(
            c.key_to_pem(anonymous._authority_key()),
            anonymous.anonymous_authority_pem(),
            c.new_request(key, "mallory"),
            Identity("hearts", "operator", "mallory"),
            house.now,
            DAY,
        ),
    )
    async with serving(house.certify("server", "main"), roots) as address:
        for caller in (honest, liar):
            seen = await call(address, house.pem, caller, b"who")
            assert not c.verify_issued(seen, house.pem)


@pytest.mark.adversarial
async def test_the_anonymous_authority_makes_no_server(house):
    key = c.new_key_pem()
    forged = (
        key,
        c.issue(
            c.key_to_pem(anonymous._authority_key()),
            anonymous.anonymous_authority_pem(),
            c.new_request(key, "main"),
            Identity("hearts", "server", "main"),
            house.now,
            DAY,
        ),
    )
    async with serving(forged, house.pem) as address:
        assert type(await refused(address, house.pem, house.certify("site"))) is PeerUntrusted


async def test_nobody_there(house):
    async with serving(house.certify("server", "main"), house.pem) as address:
        pass
    assert type(await refused(address, house.pem, house.certify("site"))) is ServerUnreachable


def test_the_address_is_checked_before_anything_is_dialled(house):
    key, certificate = house.certify("site")
    with pytest.raises(ConfigError):
        ch.secure_channel("dns:///x:1", authority_pem=house.pem, key_pem=key, certificate_pem=certificate)
