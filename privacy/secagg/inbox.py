"""What the sites of a session have said: one message of a kind from each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from .checks import require_signed
from .codes import AbortCode, abort
from .signing import Kind, Signed


@dataclass(slots=True)
class Inbox:
    """The accepted messages of a session.

    Attributes:
        sid: the session.
        public_keys: the Ed25519 key of each participant.
        accepted: by sender and kind.
    """

    sid: bytes
    public_keys: Mapping[bytes, bytes] = field(repr=False)
    accepted: dict[tuple[bytes, Kind], Signed] = field(default_factory=dict, repr=False)

    def sent(self, kind: Kind) -> dict[bytes, Signed]:
        """The messages of this kind, sorted by sender."""
        return {sender: self.accepted[sender, kind] for sender in sorted(self.senders(kind))}

    def senders(self, kind: Kind) -> frozenset[bytes]:
        """Who has sent a message of this kind."""
        return frozenset(sender for sender, sent in self.accepted if sent is kind)

    def take(
        self,
        message: Signed,
        keep: Callable[[Signed], None],
        *,
        expected: Collection[Kind],
        asked: Collection[bytes],
    ) -> None:
        """Accept a message and have it kept; one that was accepted before changes nothing.

        Raises:
            SecureSumFailed: it is of another session, not signed by a participant, differs from one of its kind that
                was accepted, is not expected now; or what ``keep`` raises.
        """
        if message.sid != self.sid:
            raise abort(AbortCode.BAD_MESSAGE, "the message is of another session", [message.sender])
        require_signed([message], self.public_keys)
        before = self.accepted.get((message.sender, message.kind))
        if before is not None:
            if before.body != message.body:
                reason = f"a second {message.kind.label} message that differs from the first"
                raise abort(AbortCode.BAD_MESSAGE, reason, [message.sender])
            return
        if message.kind not in expected or message.sender not in asked:
            reason = f"a {message.kind.label} message is not expected from this site in this phase"
            raise abort(AbortCode.LATE, reason, [message.sender])
        keep(message)
        self.accepted[message.sender, message.kind] = message
