"""Queries in the database: states that only go forward, verdicts that stand, a journal entry for each change."""

from __future__ import annotations

from itertools import pairwise

import pytest
from foedus.clock import ManualClock
from foedus.errors import NotFound, RunStateError
from foedus.privacy.analytics.answer import Answer, Answers, Estimate
from foedus.privacy.analytics.query import Query
from foedus.server.history import Verdict
from foedus.server.query_records import QueryRecords, QueryState
from foedus.server.store import Store

QUERY = Query.model_validate({"name": "q", "question": {"kind": "count", "column": "age"}})
ANSWERS = Answers((Answer("count", "age", (Estimate("count", 9.0, 9.0, 9.0),), 9.0),), 2)


@pytest.fixture
def records(tmp_path):
    store = Store(tmp_path / "foedus.db")
    yield QueryRecords(store, ManualClock())
    store.close()


def events(records):
    return [row["name"] for row in records.store.query("SELECT name FROM events ORDER BY seq")]


def test_from_queued_to_answered(records):
    id = records.create(QUERY).id
    assert (records.find(id).state, records.find(id).query) == (QueryState.QUEUED, QUERY)
    assert records.find(id[:5]).id == id
    stored = records.open_attempt(id, ["b", "a"])
    assert (stored.state, stored.attempt) == (QueryState.RUNNING, 1)
    assert [asked.site for asked in records.asked(id)] == ["a", "b"]
    assert [waiting.id for waiting in records.unanswered("a")] == [id]
    records.settle(id, "a", Verdict.ACCEPTED)
    assert records.unanswered("a") == []
    done = records.answer(id, ANSWERS, {"a": Verdict.ACCEPTED, "b": Verdict.ABSENT})
    assert (done.state, done.answers, done.finished is not None) == (QueryState.ANSWERED, ANSWERS, True)
    assert [asked.verdict for asked in records.asked(id)] == [Verdict.ACCEPTED, Verdict.ABSENT]
    assert records.under_way() == []
    assert events(records) == ["query_created", "query_asked", "query_accepted", "query_answered"]


def test_an_end_is_final(records):
    for end in (lambda id: records.fail(id, "why"), lambda id: records.answer(id, ANSWERS, {})):
        id = records.create(QUERY).id
        ended, before = end(id), events(records)
        for late in (
            lambda id=id: records.fail(id, "later"),
            lambda id=id: records.answer(id, ANSWERS, {}),
            lambda id=id: records.open_attempt(id, ["a"]),
        ):
            with pytest.raises(RunStateError, match="has ended"):
                late()
        assert records.find(id) == ended
        assert events(records) == before


def test_what_was_settled_stands_and_who_refused_is_not_asked_again(records):
    id = records.create(QUERY).id
    records.open_attempt(id, ["a", "b"])
    records.settle(id, "a", Verdict.REFUSED, code="SiteVeto", reason="no")
    records.settle(id, "a", Verdict.ACCEPTED)
    records.settle(id, "b", Verdict.ABSENT)
    stored = records.open_attempt(id, ["b", "c"])
    assert stored.attempt == 2
    assert [(asked.site, asked.verdict) for asked in records.asked(id)] == [
        ("a", Verdict.REFUSED),
        ("b", Verdict.ASKED),
        ("c", Verdict.ASKED),
    ]
    assert records.asked_site(id, "a").reason == "no"
    assert records.asked_site(id, "d") is None
    assert records.unanswered("a") == []


def test_ids_are_unique_beginnings(records):
    ids = sorted(records.create(QUERY).id for _ in range(30))
    assert [stored.id for stored in records.recent(3)] == [stored.id for stored in records.recent(30)][:3]
    assert len(records.recent(100)) == 30
    shared = next(one[0] for one, other in pairwise(ids) if one[0] == other[0])
    with pytest.raises(NotFound, match="more than one query"):
        records.find(shared)
    for nothing in ("", "zz", "%"):
        with pytest.raises(NotFound, match="no query"):
            records.find(nothing)
