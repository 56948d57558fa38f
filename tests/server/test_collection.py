"""Collecting, as a state machine, against a model that is written the long way."""

from __future__ import annotations

import math

import pytest
from foedus.server.collection import Collection, Decision, State
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

SITES = [f"s{number}" for number in range(6)]
DEADLINE = 10.0


class CollectionMachine(RuleBasedStateMachine):
    """``lives`` holds when each site last showed life; nothing else is shared with the code."""

    @initialize(asked=st.sets(st.sampled_from(SITES)), enough=st.integers(1, 6), data=st.data())
    def begin(self, asked, enough, data):
        self.now = 100.0
        self.target, self.quorum = enough, data.draw(st.integers(0, enough))
        self.indispensable = data.draw(st.none() | st.sampled_from(SITES))
        self.collection = Collection(self.target, self.quorum, DEADLINE, indispensable=self.indispensable)
        self.asked = set(asked)
        self.lives = dict.fromkeys(asked, self.now)
        self.accepted, self.out = set(), set()
        self.collection.ask(asked, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.5, 4.5, 5.0, 9.5, 10.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(site=st.sampled_from(SITES))
    def alive(self, site):
        self.collection.alive(site, self.now)
        if site in self.asked - self.accepted - self.out:
            self.lives[site] = self.now

    @rule(site=st.sampled_from(SITES), accepted=st.booleans())
    def settle(self, site, accepted):
        if site not in self.asked or site in self.out:
            accepted = False  # the server's records stand before: only who was asked is accepted
        self.collection.settle(site, accepted=accepted)
        if site in self.asked and site not in self.accepted:
            (self.accepted if accepted else self.out).add(site)

    @invariant()
    def agrees(self):
        decision = self.collection.decide(self.now)
        still = self.asked - self.accepted - self.out
        silent = {site for site in still if self.now - self.lives[site] >= DEADLINE}
        assert decision.silent == silent
        assert self.collection.open_sites == still
        assert self.collection.accepted == self.accepted <= self.asked
        waiting = still - silent
        if self.indispensable not in {None, *self.accepted, *waiting}:
            expected = State.MISSED
        elif len(self.accepted) >= self.target and self.indispensable not in waiting:
            expected = State.MET
        elif not waiting:
            expected = State.MET if len(self.accepted) >= self.quorum else State.MISSED
        else:
            expected = State.MISSED if len(self.accepted | waiting) < self.quorum else State.OPEN
        assert decision.state is expected
        if expected is State.OPEN:
            assert decision.wait_until == min(self.lives[site] for site in waiting) + DEADLINE
            assert decision.wait_until > self.now


TestCollection = CollectionMachine.TestCase


def collection(*sites, target=2, quorum=1):
    found = Collection(target, quorum, DEADLINE)
    found.ask(sites, 0.0)
    return found


def test_silence_begins_exactly_at_the_deadline():
    found = collection("a", "b")
    found.settle("a", accepted=True)
    assert found.decide(math.nextafter(DEADLINE, 0)) == Decision(State.OPEN, frozenset(), DEADLINE)
    assert found.decide(DEADLINE) == Decision(State.MET, frozenset("b"))


def test_a_hopeless_collection_ends_before_the_deadline():
    found = collection("a", "b", target=2, quorum=2)
    found.settle("a", accepted=False)
    assert found.decide(0.0).state is State.MISSED


def test_who_was_not_asked_is_not_waited_for():
    found = collection("a")
    found.alive("stranger", 1.0)
    assert found.open_sites == {"a"}


@pytest.mark.parametrize("quorum", [0, 1])
def test_nobody_asked_is_over_at_once(quorum):
    assert collection(target=0 if not quorum else 1, quorum=quorum).decide(0.0).state is (
        State.MISSED if quorum else State.MET
    )


def test_a_site_that_only_claims_progress_cannot_hold_a_round_beyond_its_end() -> None:
    collection = Collection(target=2, quorum=1, deadline_seconds=10.0, ends=30.0)
    collection.ask(["honest", "liar"], 0.0)
    collection.settle("honest", accepted=True)
    for now in range(1, 30):
        collection.alive("liar", float(now))
        assert collection.decide(float(now)).state is State.OPEN
        assert collection.decide(float(now)).wait_until <= 30.0
    collection.alive("liar", 30.0)
    decision = collection.decide(30.0)
    assert (decision.state, decision.silent) == (State.MET, {"liar"})
