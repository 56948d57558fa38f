"""Live sessions, rates and versions: the small pure parts around a connection."""

from __future__ import annotations

import asyncio

import pytest
from foedus.protos.messages import Hello, Outcome, Phase, Release, TaskOffer, Work
from foedus.server.access import ALLOWED, Bucket
from foedus.server.services.session import compatible
from foedus.server.sessions import MAX_QUEUED, LiveSession, Sessions
from hypothesis import given
from hypothesis import strategies as st

RELEASE = Release(Work("run", 1, Phase.TRAIN), Outcome.COUNTED)


def session(site, *tasks):
    return LiveSession(site, Hello("0.1.0", tuple(TaskOffer(t, "ab" * 32) for t in tasks), 0.0), since=0, last_seen=0)


def drained(found):
    messages = []
    while not found.outgoing.empty():
        messages.append(found.outgoing.get_nowait())
    return messages


def test_a_session_that_is_closing_is_not_asked():
    sessions, a, b = Sessions(), session("a", "heart"), session("b", "heart")
    sessions.open(a)
    sessions.open(b)
    assert sessions.offering("heart") == ["a", "b"]
    a.end("the site was suspended")
    assert sessions.offering("heart") == ["b"]


def test_a_newer_session_replaces_the_older_and_outlives_its_end():
    sessions, old, new = Sessions(), session("a", "heart"), session("a", "lung")
    sessions.open(old)
    sessions.open(new)
    assert "replaced" in old.closing
    assert drained(old) == [None]
    sessions.close(old)  # the old stream's end must not forget the new one
    assert sessions.get("a") is new
    assert (sessions.offering("lung"), sessions.offering("heart"), len(sessions)) == (["a"], [], 1)
    sessions.close(new)
    assert (sessions.get("a"), len(sessions)) == (None, 0)


def test_offers_are_by_name():
    sessions = Sessions()
    for name in "cab":
        sessions.open(session(name, "heart", *(["lung"] if name == "b" else [])))
    assert sessions.offering("heart") == ["a", "b", "c"]
    assert sessions.offering("lung") == ["b"]


@pytest.mark.adversarial
def test_a_site_that_does_not_read_is_cut_off_and_costs_bounded_memory():
    found = session("a")
    for _ in range(10 * MAX_QUEUED):
        found.send(RELEASE)
    messages = drained(found)
    assert len(messages) == MAX_QUEUED
    assert None in messages
    assert "does not read" in found.closing


def test_sending_to_who_is_away_is_harmless():
    Sessions().send("nobody", RELEASE)


async def test_every_change_wakes_whoever_waits():
    sessions, found = Sessions(), session("a")
    for change in (lambda: sessions.open(found), lambda: sessions.close(found)):
        waiting = asyncio.create_task(sessions.change())
        await asyncio.sleep(0)
        assert not waiting.done()
        change()
        await waiting


class TestBucket:
    def test_a_burst_then_the_rate(self):
        bucket = Bucket(rate=2.0, burst=3, level=3, filled=0.0)
        assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
        assert not bucket.take(0.25)
        assert bucket.take(0.5)
        assert not bucket.take(0.5)

    def test_it_never_fills_beyond_its_burst(self):
        bucket = Bucket(rate=100.0, burst=2, level=2, filled=0.0)
        assert [bucket.take(1e9) for _ in range(3)] == [True, True, False]

    def test_a_clock_that_is_set_back_locks_nobody_out(self):
        bucket = Bucket(rate=1.0, burst=2, level=2, filled=10_000.0)
        assert [bucket.take(5_000.0) for _ in range(3)] == [True, True, False]
        assert bucket.take(5_001.0)

    @given(st.floats(0.1, 100), st.integers(1, 50), st.lists(st.floats(0, 2), max_size=80))
    def test_no_schedule_beats_it(self, rate, burst, waits):
        bucket, now, taken = Bucket(rate, burst, burst, 0.0), 0.0, 0
        for wait in waits:
            now += wait
            taken += bucket.take(now)
            assert taken <= burst + rate * now + 1e-6


@pytest.mark.parametrize(
    ("mine", "theirs", "accepted"),
    [
        ("1.2.3", "1.2.99", True),
        ("1.2.3", "1.1.0", True),
        ("1.2.3", "1.3.0", True),
        ("1.2.3", "1.0.9", False),
        ("1.2.3", "1.4.0", False),
        ("1.2.3", "2.2.3", False),
        ("0.1.0", "0.1.0.dev5", True),
        ("0.1.0", "0.1", True),
        ("1.2.3", "1", False),
        ("1.2.3", "one.two", False),
        ("1.2.3", "", False),
        ("1.2.3", "...", False),
    ],
)
def test_versions(mine, theirs, accepted):
    assert compatible(mine, theirs) is accepted


def test_every_method_that_is_allowed_to_strangers_is_known():
    assert {method for method, roles in ALLOWED.items() if "anonymous" in roles} == {"/foedus.v1.Enrolment/Join"}
    assert not any("server" in roles for roles in ALLOWED.values())
