"""Joining, and renewing a certificate."""

from __future__ import annotations

from ...errors import AccessDenied
from ...privacy.certificates import request_key_sha256
from ...privacy.secrets import Secret
from ...protos.v1 import enrolment_pb2, enrolment_pb2_grpc
from ..access import Context, caller
from ..authority import Authority
from ..federation import Federation
from ..members import MemberState

MAX_SECRET_LENGTH = 256


class EnrolmentService(enrolment_pb2_grpc.EnrolmentServicer):
    """Certificates for members."""

    def __init__(self, fed: Federation, authority: Authority) -> None:
        self._fed = fed
        self._authority = authority

    async def Join(self, request: enrolment_pb2.JoinRequest, context: Context) -> enrolment_pb2.JoinReply:
        """Redeem an invitation; the certificate comes once the operator has approved."""
        request_pem = request.request_pem.encode()
        member = self._fed.registry.redeem(
            Secret(request.secret[:MAX_SECRET_LENGTH]),
            request_pem=request.request_pem,
            key_sha256=request_key_sha256(request_pem),
            origin=caller.get().origin,
            signing_key=request.signing_key,
        )
        if member.state is not MemberState.ACTIVE:
            return enrolment_pb2.JoinReply()
        certificate = self._authority.certify(member.role, member.name, request_pem)
        self._fed.feed.publish("member_certified", site=member.name)
        return enrolment_pb2.JoinReply(certificate_pem=certificate.decode())

    async def Renew(self, request: enrolment_pb2.RenewRequest, context: Context) -> enrolment_pb2.RenewReply:
        """A new certificate for the caller's own name and key."""
        who = caller.get()
        request_pem = request.request_pem.encode()
        if request_key_sha256(request_pem) != who.key_sha256:
            raise AccessDenied(
                "a certificate is renewed for the key it was issued to", hint="join again to change the key"
            )
        certificate = self._authority.certify(who.identity.role, who.name, request_pem)
        self._fed.feed.publish("member_renewed", site=who.name)
        return enrolment_pb2.RenewReply(certificate_pem=certificate.decode())
