"""Every method of the server times every kind of caller: exactly what is allowed, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
import numpy as np
import pytest
from foedus.errors import (
    AccessDenied,
    ConfigError,
    NotApproved,
    NotFound,
    ProtocolError,
    RunStateError,
    StaleRound,
    TokenRefused,
)
from foedus.layout import layout_of
from foedus.modelfile import Model
from foedus.privacy import anonymous
from foedus.privacy import certificates as c
from foedus.privacy.identity import Identity
from foedus.protos.channel import CHANNEL_OPTIONS
from foedus.protos.status import CODE_KEY
from foedus.protos.v1 import (
    enrolment_pb2,
    enrolment_pb2_grpc,
    operations_pb2,
    operations_pb2_grpc,
    session_pb2,
    transfer_pb2,
    transfer_pb2_grpc,
)
from foedus.server import access
from foedus.server.access import ALLOWED
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from loopback import Credentials, RawSite, loopback, plan, typed, update_bytes

pytestmark = pytest.mark.adversarial

SCHEMAS = (enrolment_pb2, operations_pb2, session_pb2, transfer_pb2, health_pb2, reflection_pb2)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for schema in SCHEMAS
    for service in schema.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
OPEN = {"reflection": True, "limits": {"calls_per_second": 1e6, "burst": 10**6}}
DENIED = {"AccessDenied", "NotApproved"}


async def outcome(channel, path, method=None, request=b""):
    """The code of the error with which a call ends ("" for none of ours), read from the first answer."""
    streams_in = method is not None and method.client_streaming
    streams_out = method is not None and method.server_streaming
    kind = f"{'stream' if streams_in else 'unary'}_{'stream' if streams_out else 'unary'}"
    call = getattr(channel, kind)(path)(iter([request]) if streams_in else request, timeout=20)
    try:
        if streams_out:
            await call.read()
            if method.full_name != "grpc.health.v1.Health.Watch":  # which never ends by itself
                while await call.read() is not grpc.aio.EOF:
                    pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        found = dict(error.trailing_metadata() or ())
        return found.get(CODE_KEY, error.code().name)
    finally:
        call.cancel()
    return "" if not streams_out else dict(await call.trailing_metadata() or ()).get(CODE_KEY, "")


def anonymous_caller(local):
    key, certificate = anonymous.anonymous_certificate(time.time())
    return Credentials(local.address, local.authority, key, certificate)


def forged(local, role, name):
    """Anybody can issue from the anonymous authority, and write into the certificate what he likes."""
    key = c.new_key_pem()
    certificate = c.issue(
        c.key_to_pem(anonymous._authority_key()),
        anonymous.anonymous_authority_pem(),
        c.new_request(key, name),
        Identity("hearts", role, name),
        time.time(),
        3600,
    )
    return Credentials(local.address, local.authority, key, certificate)


def foreign(local, role="operator", name="operator"):
    """Another authority that claims the same federation."""
    authority_key, authority = c.new_authority("hearts", time.time(), 86_400)
    key = c.new_key_pem()
    certificate = c.issue(
        authority_key, authority, c.new_request(key, name), Identity("hearts", role, name), time.time(), 3600
    )
    return Credentials(local.address, local.authority, key, certificate)


def other_federation(local):
    key = c.new_key_pem()
    certificate = c.issue(
        local.home.authority_key.read_bytes(),
        local.authority,
        c.new_request(key, "operator"),
        Identity("lungs", "operator", "operator"),
        time.time(),
        3600,
    )
    return Credentials(local.address, local.authority, key, certificate)


def changed(local, *actions):
    credentials = local.member("site", "berlin")
    for action in actions:
        local.fed.registry.change("site", "berlin", action)
    return credentials


def superseded(local):
    old = local.member("site", "berlin")
    local.member("site", "berlin")
    return old


def test_the_table_names_exactly_the_methods_there_are():
    ours = {path for path in METHODS if path.startswith("/foedus.")}
    assert ours == {path for path in ALLOWED if path.startswith("/foedus.")}
    assert set(ALLOWED) <= set(METHODS)
    assert len(ours) == 22


@pytest.mark.parametrize(
    ("role", "caller"),
    [
        ("anonymous", anonymous_caller),
        ("site", lambda local: local.member("site", "berlin")),
        ("operator", lambda local: local.member("operator", "ada")),
        ("anonymous", lambda local: forged(local, "operator", "operator")),
        ("anonymous", lambda local: forged(local, "site", "berlin")),
        ("anonymous", other_federation),
    ],
    ids=["anonymous", "site", "operator", "forged operator", "forged site", "other federation"],
)
async def test_each_role_may_do_what_the_table_says(tmp_path, role, caller):
    async with loopback(tmp_path, **OPEN) as local:
        local.member("site", "berlin")
        channel = local.open(caller(local))
        for path, method in METHODS.items():
            code = await outcome(channel, path, method)
            expected = role in ALLOWED.get(path, ())
            assert (code != "AccessDenied") is expected, (path, code)
            assert code not in ("INTERNAL", "UNKNOWN", "UNIMPLEMENTED"), path


@pytest.mark.parametrize(
    "caller",
    [
        lambda local: changed(local, "suspend"),
        lambda local: changed(local, "revoke"),
        superseded,
        lambda local: local.certified("site", "never-enrolled"),
        lambda local: local.certified("operator", "never-enrolled"),
    ],
    ids=["suspended", "revoked", "superseded key", "unknown site", "unknown operator"],
)
async def test_who_is_no_active_member_may_do_nothing_at_all(tmp_path, caller):
    async with loopback(tmp_path, **OPEN) as local:
        channel = local.open(caller(local))
        for path, method in METHODS.items():
            assert await outcome(channel, path, method) in DENIED, path


@pytest.mark.parametrize(
    "caller",
    [
        foreign,
        lambda local: local.member("site", "berlin", lifetime=3600, age=7200),
        lambda local: local.member("site", "berlin", lifetime=86_400, age=-7200),
        lambda local: local.member("operator", "ada", lifetime=3600, age=7200),
    ],
    ids=["foreign authority", "expired site", "not yet valid", "expired operator"],
)
async def test_tls_itself_refuses(tmp_path, caller):
    async with loopback(tmp_path, **OPEN) as local:
        channel = local.open(caller(local))
        for path, method in METHODS.items():
            assert await outcome(channel, path, method) == "UNAVAILABLE", path


async def test_a_certificate_of_a_server_opens_nothing(tmp_path):
    async with loopback(tmp_path, **OPEN) as local:
        channel = local.open(local.certified("server", "server"))
        for path, method in METHODS.items():
            assert await outcome(channel, path, method) in {"UNAVAILABLE", "AccessDenied"}, path


async def test_no_call_without_mutual_tls(tmp_path):
    path = "/foedus.v1.Enrolment/Join"
    async with loopback(tmp_path, **OPEN) as local:
        async with grpc.aio.insecure_channel(local.address) as channel:
            assert await outcome(channel, path) == "UNAVAILABLE"
        bare = grpc.ssl_channel_credentials(local.authority)
        async with grpc.aio.secure_channel(local.address, bare, options=CHANNEL_OPTIONS) as channel:
            assert await outcome(channel, path) == "UNAVAILABLE"
        assert await outcome(local.open(anonymous_caller(local)), path) == "EnrolmentError"


@pytest.mark.parametrize(
    "path", ["/foedus.v1.Operations/Backdoor", "/foedus.v1.New/Method", "/x", "/grpc.health.v1.Health/Shut"]
)
async def test_a_method_that_is_not_in_the_table_is_for_nobody(tmp_path, path):
    async with loopback(tmp_path, **OPEN) as local:
        operator = local.open(local.member("operator", "ada"))
        for channel in (operator, local.open(anonymous_caller(local))):
            assert await outcome(channel, path) == "AccessDenied"


async def test_reflection_names_every_service(tmp_path):
    async with loopback(tmp_path, **OPEN) as local:
        stub = reflection_pb2_grpc.ServerReflectionStub(local.open(local.member("operator", "ada")))
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        reply = await call.read()
        names = {service.name for service in reply.list_services_response.service}
        assert names == {path.split("/")[1] for path in METHODS}


async def test_forgetting_a_method_closes_it(tmp_path, monkeypatch):
    path = "/foedus.v1.Operations/ListRuns"
    async with loopback(tmp_path, **OPEN) as local:
        channel = local.open(local.member("operator", "ada"))
        assert await outcome(channel, path) == ""
        monkeypatch.delitem(access.ALLOWED, path)
        assert await outcome(channel, path) == "AccessDenied"


async def test_who_may_not_call_is_told_before_its_bytes_are_read(tmp_path):
    async with loopback(tmp_path, **OPEN) as local:
        site, operator = local.open(local.member("site", "b")), local.open(local.member("operator", "ada"))
        path = "/foedus.v1.Operations/Invite"
        assert await outcome(site, path, request=b"\xff\xff") == "AccessDenied"
        assert await outcome(operator, path, request=b"\xff\xff") == "ProtocolError"


def reachable(message, seen):
    if message.full_name not in seen:
        seen[message.full_name] = message
        for field in message.fields:
            if field.message_type is not None:
                reachable(field.message_type, seen)
    return seen


def test_nothing_that_a_site_sends_has_room_for_a_sites_name():
    sent = {}
    for path, roles in ALLOWED.items():
        if "site" in roles and path.startswith("/foedus."):
            reachable(METHODS[path].input_type, sent)
    assert "foedus.v1.UploadHeader" in sent
    fields = {f"{name}.{field.name}" for name, message in sent.items() for field in message.fields}
    suspicious = {f for f in fields if any(word in f.rsplit(".", 1)[1] for word in ("site", "name", "who", "member"))}
    assert suspicious == {"foedus.v1.TaskOffer.name"}


async def test_a_site_cannot_act_for_another_nor_see_its_work(tmp_path):
    async with loopback(tmp_path) as local:
        a = local.site("a")
        await a.connect()

        run = await local.submit(plan(cohort={"count": 1, "deadline_seconds": 60}))
        order = await a.hear("assignment")
        b = local.site("b")
        await b.connect()
        with pytest.raises(StaleRound, match="b was not asked"):
            await b.upload(order, update_bytes(9.0))
        with pytest.raises(AccessDenied, match="no open work of 'b'"):
            await b.download(order.model_sha256)
        for message in (
            session_pb2.SiteMessage(refusal=session_pb2.Refusal(work=order.work, code="SiteVeto", reason="for a")),
            session_pb2.SiteMessage(evaluation=session_pb2.Evaluation(work=order.work, model_sha256="ab" * 32)),
        ):
            await b.connect()
            b.say(message)
            with pytest.raises(StaleRound, match="b was not asked"):
                await b.hear("assignment")
        for path in ("FetchModel", "ShowRun", "ListRounds", "ListSites", "Invite", "ChangeSite"):
            method = METHODS[f"/foedus.v1.Operations/{path}"]
            assert await outcome(b.channel, f"/foedus.v1.Operations/{path}", method) == "AccessDenied"
        # Its heartbeats for a's work keep nothing alive, and a is none the worse.
        await b.connect()
        b.say(session_pb2.SiteMessage(heartbeat=session_pb2.Heartbeat(work=order.work, progress=10**9)))
        assert len(await a.download(order.model_sha256)) == order.model_bytes
        assert (await a.upload(order, update_bytes(1.0))).accepted
        shown = await local.ended(run)
        assert [(p.site, p.verdict) for p in shown.rounds[0].participations] == [("a", "accepted")]


async def test_a_site_learns_nothing_about_runs_of_others(tmp_path):
    """The same answer for a run that exists, for a beginning of its id and for none."""
    async with loopback(tmp_path) as local:
        a, b = local.site("a"), local.site("b")
        await a.connect()

        run = await local.submit(plan(cohort={"count": 1, "deadline_seconds": 60}))
        order = await a.hear("assignment")
        answers = set()
        for id in (run, run[:3], "nonexistent"):
            with pytest.raises(StaleRound) as caught:
                await b.upload(order, update_bytes(1.0), run=id)
            answers.add(str(caught.value).replace(id, "RUN"))
        assert len(answers) == 1


async def test_only_models_of_open_work_are_given_out(tmp_path):
    async with loopback(tmp_path) as local:
        a = local.site("a")
        await a.connect()

        run = await local.submit(plan(cohort={"count": 1, "deadline_seconds": 60}))
        order = await a.hear("assignment")
        size = order.model_bytes
        assert len(await a.download(order.model_sha256, offset=size - 5)) == 5
        assert await a.download(order.model_sha256, offset=size) == b""
        for offset in (size + 1, 2**64 - 1):
            with pytest.raises(ProtocolError, match="beyond"):
                await a.download(order.model_sha256, offset=offset)
        for name in ("../foedus.db", "..", "", order.model_sha256.upper(), order.model_sha256 + "\n"):
            with pytest.raises(ProtocolError, match="64 lower-case"):
                await a.download(name)
        assert (await a.upload(order, update_bytes(1.0))).accepted
        await local.ended(run)
        with pytest.raises(AccessDenied):
            await a.download(order.model_sha256)


async def test_tokens(tmp_path):
    async with loopback(tmp_path) as local:
        request = operations_pb2.InviteRequest(name="berlin", role="site", lifetime_seconds=3600, approved=True)
        reply = await local.operator().Invite(request)
        secret = local.invitation(reply.invitation).secret
        stranger = RawSite("berlin", local.open(anonymous_caller(local)))
        key = c.new_key_pem()
        for wrong in ("", "x", secret[:-1], secret + "x", secret.swapcase()):
            with pytest.raises(TokenRefused):
                await stranger.join(wrong, key)
        certificate = (await stranger.join(secret, key)).certificate_pem.encode()
        assert c.read_identity(certificate) == Identity("hearts", "site", "berlin")
        assert c.certifies(certificate, key)
        with pytest.raises(TokenRefused, match="another key"):
            await stranger.join(secret, c.new_key_pem())
        assert (await stranger.join(secret, key)).certificate_pem
        local.fed.registry.change("site", "berlin", "revoke")
        with pytest.raises(NotApproved):
            await stranger.join(secret, key)


async def test_the_name_is_the_invitations_and_not_the_requests(tmp_path):
    async with loopback(tmp_path) as local:
        request = operations_pb2.InviteRequest(name="berlin", role="site", lifetime_seconds=3600, approved=True)
        secret = local.invitation((await local.operator().Invite(request)).invitation).secret
        stranger = RawSite("operator", local.open(anonymous_caller(local)))
        certificate = (await stranger.join(secret)).certificate_pem.encode()
        assert c.read_identity(certificate).uri == "spiffe://hearts/site/berlin"


async def test_a_certificate_is_renewed_for_its_own_key_only(tmp_path):
    async with loopback(tmp_path) as local:
        credentials = local.member("site", "berlin")
        stub = enrolment_pb2_grpc.EnrolmentStub(local.open(credentials))

        def renewal(key, name="berlin"):
            return stub.Renew(enrolment_pb2.RenewRequest(request_pem=c.new_request(key, name).decode()))

        with pytest.raises(AccessDenied, match="the key it was issued to"):
            await typed(renewal(c.new_key_pem()))
        renewed = (await typed(renewal(credentials.key_pem, "operator"))).certificate_pem.encode()
        assert c.read_identity(renewed).uri == "spiffe://hearts/site/berlin"


async def test_strangers_share_one_rate_per_address(tmp_path):
    async with loopback(tmp_path, limits={"calls_per_second": 0.001, "burst": 5}) as local:
        codes = []
        for _ in range(4):
            channel = local.open(anonymous_caller(local))  # a new certificate and connection each time
            codes += [await outcome(channel, "/foedus.v1.Enrolment/Join") for _ in range(2)]
        assert codes == ["EnrolmentError"] * 5 + ["RateLimited"] * 3
        member = local.open(local.member("operator", "ada"))
        assert await outcome(member, "/foedus.v1.Operations/Status") == ""


async def test_who_holds_a_superseded_key_cannot_use_up_the_rate_of_the_new_one(tmp_path):
    async with loopback(tmp_path, limits={"calls_per_second": 0.001, "burst": 3}) as local:
        old = local.open(local.member("site", "berlin"))
        new = local.open(local.member("site", "berlin"))
        path = "/grpc.health.v1.Health/Check"
        assert [await outcome(old, path) for _ in range(5)] == ["AccessDenied"] * 3 + ["RateLimited"] * 2
        assert await outcome(new, path) == ""


async def test_calls_that_are_denied_count_against_the_rate_too(tmp_path):
    async with loopback(tmp_path, limits={"calls_per_second": 0.001, "burst": 3}) as local:
        site = local.open(local.member("site", "berlin"))
        codes = [await outcome(site, "/foedus.v1.Operations/Drain") for _ in range(5)]
        assert codes == ["AccessDenied"] * 3 + ["RateLimited"] * 2


async def test_nobody_keeps_more_than_so_many_calls_open(tmp_path):
    async with loopback(tmp_path, limits={"open_calls": 5, "burst": 1000}) as local:
        hoarder, calm = local.open(local.member("site", "hoarder")), local.open(local.member("site", "calm"))
        stub = health_pb2_grpc.HealthStub(hoarder)
        held = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(5)]
        for call in held:
            assert (await call.read()).status == 1
        path = "/grpc.health.v1.Health/Check"
        assert await outcome(hoarder, path) == "RateLimited"
        assert await outcome(calm, path) == ""
        held[0].cancel()
        while await outcome(hoarder, path) == "RateLimited":
            await asyncio.sleep(0.01)
        for call in held:
            call.cancel()


async def test_an_operator_is_revoked_by_another_and_its_open_watch_ends(tmp_path):
    async with loopback(tmp_path) as local:
        eve = operations_pb2_grpc.OperationsStub(local.open(local.member("operator", "eve")))
        run = await local.submit()
        watch = eve.WatchRun(operations_pb2.RunRequest(run=run))
        assert (await watch.read()).name == "watch_began"

        def change(stub, name, action):
            return typed(stub.ChangeSite(operations_pb2.ChangeSiteRequest(name=name, action=action, role="operator")))

        for action in ("suspend", "revoke"):
            with pytest.raises(RunStateError, match="itself"):
                await change(eve, "eve", action)
        assert (await change(local.operator(), "eve", "revoke")).state == "revoked"
        with pytest.raises(NotApproved):
            await typed(eve.Status(operations_pb2.StatusRequest()))
        with pytest.raises(NotApproved):
            await typed(watch.read())
        with pytest.raises(NotFound):
            await change(local.operator(), "nobody", "approve")
        with pytest.raises(ConfigError, match="not one of site, operator"):
            await typed(
                local.operator().ChangeSite(operations_pb2.ChangeSiteRequest(name="x", action="approve", role="server"))
            )


@pytest.mark.parametrize("folder", ["server", "server/operator"])
async def test_keys_are_readable_by_their_owner_alone(tmp_path, folder):
    async with loopback(tmp_path):
        keys = list((tmp_path / folder).glob("*key*"))
        assert keys
        assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
        assert (tmp_path / "server" / "state").stat().st_mode & 0o777 == 0o700


async def received_until_refused(stream):
    received = 0
    with contextlib.suppress(NotApproved):
        while (chunk := await typed(stream.read())) is not grpc.aio.EOF:
            received += len(chunk.data)
        raise AssertionError(f"it went on to its end, {received} bytes")
    return received


async def test_a_download_ends_when_its_site_is_suspended_and_a_fetch_when_its_operator_is_revoked(tmp_path):
    arrays = {"w": np.zeros(8 << 20, np.float32)}  # 32 MiB, more than the connections hold in flight
    async with loopback(tmp_path) as local:
        site = local.site("a")
        await site.connect()
        run = await local.submit(plan(cohort={"count": 1}), Model.of(layout_of(arrays), arrays))
        order = await site.hear("assignment")
        eve = operations_pb2_grpc.OperationsStub(local.open(local.member("operator", "eve")))
        streams = [
            transfer_pb2_grpc.TransferStub(site.channel).Download(
                transfer_pb2.DownloadRequest(sha256=order.model_sha256)
            ),
            eve.FetchModel(operations_pb2.FetchModelRequest(run=run, which="initial")),
        ]
        for stream in streams:
            assert (await stream.read()).data
        stub = local.operator()
        await stub.ChangeSite(operations_pb2.ChangeSiteRequest(name="a", action="suspend"))
        await stub.ChangeSite(operations_pb2.ChangeSiteRequest(name="eve", action="revoke", role="operator"))
        for stream in streams:
            assert await received_until_refused(stream) < order.model_bytes
