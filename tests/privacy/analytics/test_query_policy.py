"""A site answers what it has allowed, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from foedus.errors import SiteVeto
from foedus.privacy.analytics.policy import QueryPolicy
from foedus.privacy.analytics.query import Query


def query(noise: float = 0.0, records_per_person: int = 1, **question: Any) -> Query:
    asked = {"kind": "count", "column": "age"} | question
    return Query.model_validate(
        {
            "name": "q",
            "question": asked,
            "records_per_person": records_per_person,
            "noise": {"multiplier": noise} if noise else None,
        }
    )


def test_nothing_is_answered_about_a_column_that_is_not_named() -> None:
    QueryPolicy(columns=frozenset({"age"})).require(query())
    for policy in (QueryPolicy(), QueryPolicy(columns=frozenset({"sex"}))):
        with pytest.raises(SiteVeto, match="'q': this site does not answer about the column 'age'"):
            policy.require(query())


@pytest.mark.parametrize(
    ("asked", "changes", "words"),
    [
        (query(), {"min_noise_multiplier": 1.0}, "multiplier is 0, this site expects at least 1"),
        (query(noise=0.5), {"min_noise_multiplier": 1.0}, "multiplier is 0.5"),
        (query(kind="quantile", low=0, high=1, height=6), {}, "127 counters of 'age', this site expects at most 64"),
        (query(records_per_person=2), {}, "2 records of one person"),
        (query(noise=0.9), {}, "the noise multiplier 0.9 hides nobody, this site expects at least 1, or none"),
        (query(), {"min_sites": 6}, "from 5 sites would do, this site expects at least 6"),
        (query(), {"kinds": frozenset({"mean"})}, "of kind 'count'"),
    ],
)
def test_what_a_site_does_not_answer(asked: Query, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SiteVeto, match=words) as caught:
        QueryPolicy(columns=frozenset({"age"}), **changes).require(asked)
    assert caught.value.hint


def test_what_it_does() -> None:
    policy = QueryPolicy(columns=frozenset({"age"}), min_noise_multiplier=1.0, max_records_per_person=3)
    policy.require(query(noise=1.0, kind="quantile", low=0, high=1, height=6, records_per_person=3))
    QueryPolicy(columns=frozenset({"age"})).require(query(kind="quantile", low=0, high=1, height=5))


def test_every_question_is_looked_at() -> None:
    asked = Query.model_validate(
        {"name": "q", "questions": [{"kind": "count", "column": "age"}, {"kind": "count", "column": "name"}]}
    )
    with pytest.raises(SiteVeto, match="the column 'name'"):
        QueryPolicy(columns=frozenset({"age"})).require(asked)
    QueryPolicy(columns=None).require(asked)
