"""A site in a secure sum that says by hand what it says: answers are made honestly, and sent if the test sends them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from foedus.client_sdk.home import SiteHome
from foedus.layout import Layout
from foedus.privacy.secagg.member import Local, Member
from foedus.privacy.secagg.messages import unframe
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.signing import Kind
from foedus.protos.config_digest import config_sha256
from foedus.protos.messages import Assignment, Refusal, SecureMessage
from foedus.protos.v1 import session_pb2
from foedus.protos.wire import server_message_from_pb, site_message_to_pb
from loopback import Credentials, Loopback, RawSite
from secure_sums import Site


@dataclass
class RawMember:
    """One site; ``site.state`` is what it keeps of the session."""

    raw: RawSite
    site: Site
    layout: Layout
    order: Assignment | None = None

    async def hear(self, kind: Kind) -> bytes | None:
        """Wait for the server's message of a kind, whatever came before is answered; the answer, which is not sent."""
        while True:
            heard = await self.raw.hear()
            if isinstance(heard, session_pb2.Assignment):
                self.order = server_message_from_pb(session_pb2.ServerMessage(assignment=heard))
            if not isinstance(heard, session_pb2.SecureMessage):
                continue
            found, _, _ = unframe(heard.body)
            answer = self._answered(found, heard.body)
            if found is kind:
                return answer
            self.say(answer)

    def _answered(self, kind: Kind, body: bytes) -> bytes | None:
        if kind is not Kind.OFFER:
            return self.site.receive(body)
        if self.site.stored and self.site.state.descriptor.run != self.order.work.run:
            self.site.stored = None  # one session is enough here
        local = Local(
            num_coordinates=self.layout.num_trainable,
            layout_digest=bytes.fromhex(self.order.layout_sha256),
            model_digest=bytes.fromhex(self.order.model_sha256),
            config_digest=config_sha256(self.order),
        )
        return self.site.join(body, local)

    def say(self, message: bytes | None) -> None:
        """Send a message of the sum; nothing where there is none."""
        if message:
            self.raw.say(site_message_to_pb(SecureMessage(self.order.work, message)))

    def refuse(self, code: str, reason: str) -> None:
        """Say that the work will not be done."""
        self.raw.say(site_message_to_pb(Refusal(self.order.work, code, reason)))

    def masked(self, value: float) -> bytes:
        """The masked words of an update that is the same everywhere; ``site.sent[-1]`` is what was signed of them."""
        self.site.mask(np.full(self.layout.num_trainable, value, np.float32))
        return self.site.words.tobytes()

    async def upload(self, data: bytes, masked: bytes | None = None, **changes):
        """Send an update, with what was signed of it; the receipt."""
        header = {"num_examples": 0, "num_steps": 0, "masked": masked or b"", **changes}
        return await self.raw.upload(self.order_pb, data, **header)

    @property
    def order_pb(self) -> session_pb2.Assignment:
        """The assignment as far as an upload's header repeats it."""
        work = self.order.work
        pb = session_pb2.Assignment(model_sha256=self.order.model_sha256, layout_sha256=self.order.layout_sha256)
        pb.work.run, pb.work.round = work.run, work.round
        return pb


async def raw_member(local: Loopback, home: SiteHome, layout: Layout) -> RawMember:
    """An enrolled site, connected by hand."""
    names = (home.authority, home.key, home.certificate)
    credentials = Credentials(local.address, *(path.read_bytes() for path in names))
    raw = RawSite(home.path.name, local.open(credentials), credentials)
    await raw.connect()
    member = Member(home.signer(), local.fed.config.federation, home.pinned_roster_key(), SumPolicy())
    return RawMember(raw, Site(member), layout)
