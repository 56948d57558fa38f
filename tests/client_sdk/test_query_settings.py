"""``[analytics]``: nothing is answered unless a column is named; each limit refuses, and none tells a number."""

from __future__ import annotations

from datetime import time
from typing import Any

import pytest
from foedus.client_sdk.policy import Policy
from foedus.client_sdk.query_settings import QuerySettings
from foedus.client_sdk.questions import require_allowed
from foedus.client_sdk.sum_store import SumStore
from foedus.configuration import load
from foedus.errors import BudgetExhausted, ConfigError, SiteVeto
from foedus.privacy.analytics.query import Query
from foedus.privacy.events import DiscreteGaussianSum, NoiselessRelease, SkellamSum

NOON = time(12)


def query(**fields: Any) -> Query:
    return Query.model_validate({"name": "q", "question": {"kind": "count", "column": "age"}} | fields)


def policy(*, columns: Any = ("age",), outer: dict[str, Any] | None = None, **fields: Any) -> Policy:
    return Policy.model_validate({"analytics": {"columns": columns, **fields}, **(outer or {})})


def test_by_default_no_question_is_answered():
    with pytest.raises(SiteVeto, match="does not answer about the column 'age'"):
        require_allowed(Policy(), query(), 100, NOON)


@pytest.mark.parametrize("columns", [("age",), ("sex", "age"), "any"])
def test_columns_that_are_named_are(columns):
    require_allowed(policy(columns=columns), query(), 5, NOON)


@pytest.mark.parametrize(
    ("allowed", "asked", "words"),
    [
        (policy(columns=("sex",)), query(), "column 'age'"),
        (policy(kinds=("mean",)), query(), "kind 'count'"),
        (policy(min_sites=7), query(min_sites=6), "expects at least 7"),
        (policy(), query(min_sites=4), "expects at least 5"),
        (policy(min_noise_multiplier=2), query(noise={"multiplier": 1.5}), "expects at least 2"),
        (policy(max_records_per_person=2), query(records_per_person=3), "3 records of one person"),
        (policy(outer={"hours": "20:00-06:00"}), query(), "it is 12:00 at the site"),
        (policy(outer={"smallest_cohort": 6}), query(), "5 sites are asked"),
    ],
)
def test_each_limit_refuses(allowed, asked, words):
    with pytest.raises(SiteVeto, match=words):
        require_allowed(allowed, asked, 5, NOON)


def test_too_few_records_are_not_counted_aloud():
    settings = QuerySettings(min_records=10)
    settings.require_records(query(), (10.0,))
    with pytest.raises(SiteVeto, match="fewer records with a value in 'age' than its min_records 10") as caught:
        settings.require_records(query(), (9.0,))
    assert "9" not in str(caught.value)
    several = Query.model_validate(
        {"name": "q", "questions": [{"kind": "count", "column": "age"}, {"kind": "count", "column": "sex"}]}
    )
    with pytest.raises(SiteVeto, match="in 'sex'"):
        settings.require_records(several, (10.0, 0.0))


def test_a_budget_is_of_all_answers_together():
    event = SkellamSum(l2_sensitivity=1.0, l1_sensitivity=1.0, variance=100.0)
    QuerySettings().require_budget(query(), [NoiselessRelease()])
    settings = QuerySettings(max_epsilon=1.0)
    settings.require_budget(query(), [event])
    with pytest.raises(BudgetExhausted, match=r"ε = 1\.[0-9]+ at δ = 1e-06, this site allows 1"):
        settings.require_budget(query(), [event] * 5)
    with pytest.raises(BudgetExhausted, match="ε = inf"):
        settings.require_budget(query(), [event, NoiselessRelease()])


def test_what_was_spent_is_kept_and_entered_once(tmp_path):
    gauss = DiscreteGaussianSum(l2_sensitivity=1.5, site_variance=2.0, num_sites=4, num_coordinates=25)
    skellam = SkellamSum(l2_sensitivity=1.5, l1_sensitivity=2.0, variance=9.0)
    store = SumStore.open(tmp_path)
    for sid, event in ((b"a", gauss), (b"b", skellam), (b"a", gauss), (b"a", skellam), (b"c", NoiselessRelease())):
        store.spend(sid, event)
    store.close()
    store = SumStore.open(tmp_path)
    assert store.spent() == [gauss, skellam, NoiselessRelease()]
    assert store.spent(beside=b"b") == [gauss, NoiselessRelease()]
    store.close()


def test_mistakes_are_named(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('[analytics]\ncolumns = ["age"]\nkinds = ["median"]\n')
    with pytest.raises(ConfigError, match=r"analytics\.kinds"):
        load(Policy, path)
    path.write_text("[analytics]\ncolumn = 3\n")
    with pytest.raises(ConfigError, match="column is not a known key") as caught:
        load(Policy, path)
    assert caught.value.hint == "did you mean columns?"
