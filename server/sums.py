"""The secure sums under way: what sites say goes in, what each is sent next comes out, recorded in between."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ..errors import AccessDenied, SecureSumFailed, StaleRound, StoreError
from ..privacy.secagg.codes import Refusal, refusal_of
from ..privacy.secagg.descriptor import SessionDescriptor
from ..privacy.secagg.encoding import Reader
from ..privacy.secagg.judging import Judged
from ..privacy.secagg.messages import Fetch, frame, unframe
from ..privacy.secagg.prg import Words
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.signing import Kind, Signed, site_id
from ..privacy.secrets import Secret
from ..protos.channel import SECURE_BYTES
from ..protos.messages import SecureMessage, Work
from .registry import Registry
from .rosters import Rosters
from .sum_records import StoredSession, SumRecords
from .sum_state import SumState, masked_in, new_state

SECRET_BYTES = 32


@dataclass(slots=True, eq=False)
class Session:
    """One secure sum under way.

    Attributes:
        attempt: of the round.
        state: what has been said.
        names: the participants' names, by id.
        outgoing: what each site that is still in it was last sent, by id.
        files: messages too long to be sent, by digest; a Fetch message stands for each.
    """

    attempt: int
    state: SumState
    names: Mapping[bytes, str]
    outgoing: Mapping[bytes, bytes] = field(default_factory=dict)
    files: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    heard: set[tuple[bytes, Kind]] = field(default_factory=set)  # whose messages are recorded

    @property
    def descriptor(self) -> SessionDescriptor:
        """What it is about."""
        return self.state.descriptor

    def send(self, messages: Mapping[bytes, bytes]) -> None:
        """Let these be what each site is sent."""
        self.files, outgoing = {}, {}
        for id, message in messages.items():
            outgoing[id] = message
            if len(message) > SECURE_BYTES:
                sha256 = hashlib.sha256(message).digest()
                self.files[sha256] = message
                outgoing[id] = frame(Kind.FETCH, unframe(message)[1], Fetch(sha256, len(message)).to_bytes())
        self.outgoing = outgoing

    def id_of(self, site: str) -> bytes | None:
        """The id under which a site takes part, if it does."""
        return next((id for id, name in self.names.items() if name == site), None)

    @property
    def waiting(self) -> frozenset[str]:
        """The names of the sites that have yet to answer."""
        return frozenset(self.names[id] for id in self.state.waiting)

    @property
    def masked(self) -> frozenset[str]:
        """The names of the sites whose masked updates have come."""
        return frozenset(self.names[id] for id in masked_in(self.state))


@dataclass(slots=True)
class Sums:
    """Sessions by the work they are for. After a restart one is rebuilt from its records when it is asked for.

    Every accepted message is recorded before it has an effect that anybody sees. Where that fails, the
    session in memory is dropped, and the recorded one is what goes on.
    """

    records: SumRecords
    rosters: Rosters
    registry: Registry
    choose: Callable[[str, SessionDescriptor, Judged], Collection[bytes]]
    _live: dict[Work, Session] = field(default_factory=dict)

    def open(self, work: Work, attempt: int, descriptor: SessionDescriptor, roster: Roster) -> Session:
        """Begin a session; it replaces the one of an earlier attempt.

        Raises:
            ConfigError: a participant is not in the roster.
            StoreError: it could not be recorded, and is not begun.
        """
        secret = Secret(secrets.token_bytes(SECRET_BYTES))
        session = self._new(work, attempt, descriptor, roster, secret)
        self.records.open(work, attempt, descriptor.to_bytes(), roster.version, secret)
        self._live[work] = session
        return session

    def find(self, work: Work) -> Session | None:
        """The newest session for a piece of work, if one was opened and is not forgotten."""
        if work not in self._live and (stored := self.records.newest(work)) is not None:
            self._live[work] = self._rebuilt(work, stored)
        return self._live.get(work)

    def current(self, work: Work) -> Session:
        """The same, where there must be one.

        Raises:
            StaleRound: there is none.
        """
        session = self.find(work)
        if session is None:
            raise StaleRound(f"no secure sum is under way for {work}")
        return session

    def receive(
        self,
        site: str,
        work: Work,
        message: bytes,
        *,
        words_digest: bytes | None = None,
        num_bytes: int = 0,
        words: bytes | None = None,
    ) -> Refusal | None:
        """Take a message of a site, or say why it is refused.

        Masked words lie in the inbox already, and then digest and size tell which they are, or are given here.

        Raises:
            StaleRound: no session is under way.
            AccessDenied: the message is in another site's name.
            StoreError: it could not be recorded, and has no effect.
        """
        session = self.current(work)
        try:
            signed = Signed.read(Reader(message, "a signed message"))  # what is sealed for others may follow it
        except SecureSumFailed as error:
            return refusal_of(error)
        if signed.sender != session.id_of(site):
            raise AccessDenied(f"{site} sent a message of site {signed.sender.hex()[:12]}, expected its own")
        if words is not None:
            words_digest, num_bytes = hashlib.sha256(words).digest(), len(words)
        refusal = session.state.receive(message, words_digest=words_digest, num_bytes=num_bytes)
        # Of each kind one is taken; the same signed anew has no effect, and no place in the records.
        if refusal is None and (signed.sender, signed.kind) not in session.heard:
            self._record(work, session, message, words if signed.kind is Kind.MASKED else None)
            session.heard.add((signed.sender, signed.kind))
        return refusal

    def words(self, work: Work) -> list[tuple[bytes, Words]]:
        """The masked words that came with messages, by who is in the sum."""
        session = self.current(work)
        rows = ((Signed.from_bytes(said).sender, words) for said, words in self.records.words(work, session.attempt))
        unsigned, masked = session.descriptor.ring.unsigned, masked_in(session.state)
        return [(id, np.frombuffer(words, unsigned)) for id, words in rows if id in masked]

    def answered(self, site: str, work: Work) -> list[str]:
        """Of whom nothing is awaited any more, now that this site has said something: itself, or everybody."""
        session = self.current(work)
        waiting = session.waiting
        if not waiting:
            return list(session.names.values())
        return [] if site in waiting else [site]

    def close(self, work: Work) -> Session:
        """End the phase; ``outgoing`` is then what each site that is still in it is sent.

        Raises:
            SecureSumFailed: the session is over, without a sum.
            StoreError: it could not be recorded, and has no effect.
        """
        session = self.current(work)
        outgoing = session.state.close()
        self._record(work, session, None)
        session.send(outgoing)
        return session

    def blame(self, work: Work, sites: Collection[bytes]) -> None:
        """Note who spoilt the session, so that the next attempt goes on without."""
        session = self.current(work)
        self.records.blame(work, session.attempt, sites)

    def blamed(self, work: Work) -> frozenset[str]:
        """Who spoilt an attempt at this work."""
        return frozenset(self.registry.site_of(id) for id in self.records.blamed(work))

    def first_participants(self, run: str) -> tuple[bytes, ...]:
        """The participants of a run's first session; none before it."""
        stored = self.records.first_descriptor(run)
        return SessionDescriptor.from_bytes(stored).participants if stored else ()

    def forget(self, run: str, through: int) -> None:
        """The rounds of a run up to one are over."""
        for work in [work for work in self._live if work.run == run and work.round <= through]:
            del self._live[work]
        self.records.forget(run, through)

    def unanswered(self, site: str) -> Iterator[SecureMessage]:
        """What a site that comes back has yet to answer, or to hear, in every session under way."""
        for work, session in self._live.items():
            id = session.id_of(site)
            if id is not None and (message := session.outgoing.get(id)) is not None:
                yield SecureMessage(work, message)

    def file_for(self, site: str, sha256: str) -> bytes | None:
        """The message of this digest, if it is what the site has to fetch now."""
        wanted = bytes.fromhex(sha256)
        for session in self._live.values():
            message = session.outgoing.get(session.id_of(site) or b"", b"")
            if wanted in session.files and wanted in message:
                return session.files[wanted]
        return None

    def _record(self, work: Work, session: Session, message: bytes | None, words: bytes | None = None) -> None:
        try:
            self.records.append(work, session.attempt, message, words)
        except StoreError:
            self._live.pop(work, None)
            raise

    def _new(self, work: Work, attempt: int, descriptor: SessionDescriptor, roster: Roster, secret: Secret) -> Session:
        state = new_state(descriptor, roster, secret, partial(self.choose, work.run))
        active = {site_id(key): site for site, key in self.registry.signing_keys().items()}
        names = {id: active.get(id) or self.registry.site_of(id) for id in descriptor.participants}
        session = Session(attempt, state, names)
        session.send(dict.fromkeys(descriptor.participants, state.offer()))
        return session

    def _rebuilt(self, work: Work, stored: StoredSession) -> Session:
        descriptor = SessionDescriptor.from_bytes(stored.descriptor)
        roster = self.rosters.roster(stored.roster_version)
        session = self._new(work, stored.attempt, descriptor, roster, stored.secret)
        num_bytes = descriptor.num_words * descriptor.ring.word_bytes
        for message in stored.messages:
            if message is None:
                session.send(session.state.close())
                continue
            signed = Signed.read(Reader(message, "a recorded message"))
            # The words were checked against this very message when they came.
            digest = signed.body if signed.kind is Kind.MASKED else None
            refusal = session.state.receive(message, words_digest=digest, num_bytes=num_bytes)
            if refusal is not None:
                raise StoreError(f"a recorded message of a secure sum is refused now: {refusal.reason}")
            session.heard.add((signed.sender, signed.kind))
        return session
