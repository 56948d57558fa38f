"""A federation on loopback with real certificates: enrolment and health, and nothing else."""

import time
from contextlib import asynccontextmanager

import grpc
from foedus.errors import NotApproved, TokenRefused
from foedus.privacy import certificates as c
from foedus.privacy.anonymous import anonymous_authority_pem
from foedus.privacy.identity import Identity
from foedus.protos import channel as ch
from foedus.protos.invitation import Invitation
from foedus.protos.status import to_status
from foedus.protos.v1 import enrolment_pb2, enrolment_pb2_grpc

DAY = 86_400.0


class Federation(enrolment_pb2_grpc.EnrolmentServicer):
    """``approve_after`` is how many questions are answered with "not yet"."""

    def __init__(self, approve_after=0):
        self.now = time.time()
        self.key, self.pem = c.new_authority("hearts", self.now - 10 * DAY, 1000 * DAY)
        self.approve_after = approve_after
        self.secret = "the-one-time-secret"
        self.bound = None  # the key the secret was used with
        self.asked = []  # (role of the caller's certificate, whether the federation issued it)
        self.signing_keys = []  # as each question brought it
        self.revoked = False
        self.certify_as = ("site", "berlin")
        self.serving = True

    def certify(self, role, name, lifetime=30 * DAY):
        key = c.new_key_pem()
        return key, self.issue(c.new_request(key, name), role, name, lifetime)

    def issue(self, request, role, name, lifetime=30 * DAY):
        return c.issue(self.key, self.pem, request, Identity("hearts", role, name), self.now, lifetime)

    async def Join(self, request, context):  # noqa: N802
        await self._note(context)
        key = c.request_key_sha256(request.request_pem.encode())
        if request.secret != self.secret or self.bound not in (None, key):
            await self._fail(context, TokenRefused("the invitation was used with another key", hint="ask again"))
        self.bound = key
        self.signing_keys.append(request.signing_key)
        if self.revoked:
            await self._fail(context, NotApproved("site 'berlin' is revoked"))
        if len(self.asked) <= self.approve_after:
            return enrolment_pb2.JoinReply()
        return enrolment_pb2.JoinReply(
            certificate_pem=self.issue(request.request_pem.encode(), *self.certify_as).decode()
        )

    async def Renew(self, request, context):  # noqa: N802
        await self._note(context)
        self.now += DAY
        return enrolment_pb2.RenewReply(
            certificate_pem=self.issue(request.request_pem.encode(), *self.certify_as).decode()
        )

    async def health(self, request, context):
        await self._note(context)
        return b"\x08\x01" if self.serving else b"\x08\x02"

    async def _note(self, context):
        (pem,) = context.auth_context()["x509_pem_cert"]
        self.asked.append((c.read_identity(pem).role, c.verify_issued(pem, self.pem)))

    async def _fail(self, context, error):
        status, message, metadata = to_status(error)
        await context.abort(status, message, metadata)

    def invitation(self, address, **changes):
        values = {"address": address, "name": "berlin", "role": "site", "authority_pem": self.pem}
        return Invitation(**{**values, "secret": self.secret, "expires": self.now + DAY, **changes})

    @asynccontextmanager
    async def running(self):
        key, certificate = self.certify("server", "main", lifetime=500 * DAY)
        server = grpc.aio.server(options=ch.SERVER_OPTIONS)
        enrolment_pb2_grpc.add_EnrolmentServicer_to_server(self, server)
        check = grpc.unary_unary_rpc_method_handler(self.health)
        handlers = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})
        server.add_generic_rpc_handlers((handlers,))
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)], root_certificates=self.pem + anonymous_authority_pem(), require_client_auth=True
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)
