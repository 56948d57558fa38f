"""Hypothesis drives one session: sites leave, restart, repeat themselves; the server closes whenever it likes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.signing import Kind
from foedus.privacy.secagg.state import Stage
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from secure_sums import Server, federation, local, server, session

SITES = 5
MADE = federation(SITES)
DESCRIBED = session(MADE, colluders=1, min_sites=4, min_survivors=4, num_coordinates=3)
POLICY = SumPolicy(min_sites=4, min_survivors=4)
PLACES = st.integers(0, SITES - 1)


class Session(RuleBasedStateMachine):
    """Every message of the server waits at each site until it is delivered, once or more often, or never."""

    run: Server
    failed: bool
    opened: bool

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.run = server(MADE, DESCRIBED, policy=POLICY, seed=seed)
        self.run.outbox = dict.fromkeys(MADE.ids, self.run.collection.offer())
        self.answers: dict[tuple[bytes, bytes], bytes | None] = {}
        self.failed = self.opened = False

    def going_on(self) -> bool:
        return not (self.failed or self.opened)

    @precondition(going_on)
    @rule(place=PLACES)
    def deliver(self, place: int) -> None:
        """What the server last sent a site reaches it; a repetition gets the same answer."""
        site = self.run.sites[MADE.ids[place]]
        message = self.run.outbox.get(site.id)
        if message is None:
            return
        phase = self.run.collection.phase
        reply = site.join(message, local(DESCRIBED)) if phase is Phase.KEYS else self._receive(site, message)
        key = (site.id, message)
        assert self.answers.setdefault(key, reply) == reply
        self.run.take(reply)

    @precondition(going_on)
    @rule(absent=st.none() | PLACES)
    def everybody(self, absent: int | None) -> None:
        """All sites but perhaps one do what they can."""
        for place in range(SITES):
            if place != absent:
                self.deliver(place)
                self.mask(place)

    def _receive(self, site: Any, message: bytes) -> bytes | None:
        return site.receive(message) if site.stored is not None else None

    @precondition(going_on)
    @rule(place=PLACES)
    def mask(self, place: int) -> None:
        site = self.run.sites[MADE.ids[place]]
        if self.run.collection.phase is Phase.MASKED and site.stored is not None:
            first = site.id in self.run.rows
            if site.state.stage in (Stage.DELIVERED, Stage.MASKED):
                before = self.run.rows.get(site.id)
                self.run.upload(site)
                assert not first or np.array_equal(before, self.run.rows[site.id])

    @precondition(going_on)
    @rule(place=PLACES, old=st.integers(0, 5))
    def repeat(self, place: int, old: int) -> None:
        """A site sends an old message again."""
        sent = self.run.sites[MADE.ids[place]].sent
        if sent and sent[old % len(sent)][0] != Kind.MASKED:
            self.run.collection.receive(sent[old % len(sent)])

    @precondition(lambda self: self.going_on() and self.run.collection.phase is not Phase.UNMASK)
    @rule(early=st.sampled_from([False] * 15 + [True]))
    def close(self, early: bool) -> None:
        """Mostly once everybody has answered, sometimes before."""
        if len(self.run.collection.waiting) > (SITES if early else 1):
            return
        try:
            self.run.outbox = self.run.collection.close()
        except SecureSumFailed as error:
            assert error.reason == "too-few"  # noqa: PT017 (that it fails for no other reason is the test)
            self.failed = True

    @precondition(lambda self: self.going_on() and self.run.collection.phase is Phase.UNMASK)
    @rule()
    def open(self) -> None:
        enough = len(self.run.collection.unmask) >= self.run.collection.threshold
        if not enough:
            with pytest.raises(SecureSumFailed, match="shares of site"):
                self.run.result()
            return
        found = self.run.require_exact()
        assert len(found.survivors) >= DESCRIBED.needed_survivors
        assert found.liars == ()
        self.opened = True

    @precondition(lambda self: not self.going_on())
    @rule(place=PLACES)
    def afterwards(self, place: int) -> None:
        """A session that is over stays over: the last message is answered as it was, if it was."""
        site = self.run.sites[MADE.ids[place]]
        message = self.run.outbox.get(site.id)
        if message is not None and (site.id, message) in self.answers and site.stored is not None:
            assert self._receive(site, message) == self.answers[site.id, message]

    @invariant()
    def no_site_reveals_twice_or_below_the_quorum(self) -> None:
        if not hasattr(self, "run"):
            return
        for site in self.run.sites.values():
            reveals = {message for message in site.sent if message[0] == Kind.UNMASK}
            assert len(reveals) <= 1
            if reveals:
                assert len(self.run.collection.acks) >= DESCRIBED.needed_acks
                assert not site.state.held
            acks = {message for message in site.sent if message[0] == Kind.ACK}
            assert len(acks) <= 1


TestSession = Session.TestCase
TestSession.settings = settings(max_examples=25, stateful_step_count=60, deadline=None)
