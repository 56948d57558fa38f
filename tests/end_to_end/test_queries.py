"""Questions to real sites: the answer is that over all their records, and the server sees none of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from foedus.errors import ConfigError, MessageTooLarge, PolicyRefused, RoundFailed
from foedus.privacy.analytics.answer import Answer, Answers
from foedus.privacy.events import SkellamSum
from foedus.privacy.renyi import epsilon
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import answers_of
from loopback import loopback, typed
from query_federation import POLICY, ages_of, asked, query_trial, sexes_of
from real_sites import serving

AGE: dict[str, Any] = {"column": "age", "low": 0, "high": 120}
EVERY_KIND = (
    {"kind": "count", "column": "sex"},
    {"kind": "sum"} | AGE,
    {"kind": "mean"} | AGE,
    {"kind": "variance"} | AGE,
    {"kind": "histogram", "column": "age", "edges": [0, 40, 60, 100]},
    {"kind": "quantile", "column": "age", "low": 0, "high": 128, "height": 5, "at": [0.25, 0.5]},
    {"kind": "top", "column": "sex", "categories": ["f", "m"], "k": 1},
)


def answers(shown: operations_pb2.Query) -> tuple[Answer, ...]:
    assert shown.state == "answered", (shown.reason, shown.sites)
    return Answers.from_json(shown.answer_json).answers


def values(shown: operations_pb2.Query) -> list[list[float | None]]:
    return [[one.value for one in found.estimates] for found in answers(shown)]


async def test_every_kind_is_answered_exactly_from_one_sum(tmp_path):
    async with query_trial(tmp_path) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(asked(*EVERY_KIND))
    ages = np.concatenate([ages_of(place) for place in range(5)])
    sexes = np.concatenate([sexes_of(place) for place in range(5)])
    count, total, mean, variance, bins, quartiles, top = values(shown)
    assert count == [len(sexes)]
    assert total == [ages.sum()]
    assert mean == [pytest.approx(ages.mean(), rel=1e-15)]
    assert variance == [pytest.approx(ages.var(), rel=1e-12)]
    assert bins == [*np.histogram(ages, [0, 40, 60, 100])[0], 0]
    ordered = np.sort(ages)
    for share, value in zip((0.25, 0.5), quartiles, strict=True):
        assert abs(value - ordered[int(np.ceil(share * len(ages))) - 1]) <= 2
    names, counts = np.unique(sexes[sexes != "x"], return_counts=True)
    assert top == [counts.max()]
    assert answers(shown)[-1].estimates[0].label == names[counts.argmax()]
    assert all(found.num_records == len(ages) for found in answers(shown))
    assert [(site.site, site.verdict) for site in shown.sites] == [(f"site-{place}", "accepted") for place in range(5)]


MEAN = {"kind": "mean"} | AGE
COUNT = {"kind": "count", "column": "age"}


def told(shown: operations_pb2.Query) -> dict[str, tuple[str, str]]:
    return {site.site: (site.verdict, site.code) for site in shown.sites}


async def test_a_site_that_does_not_answer_is_left_out(tmp_path):
    async with query_trial(tmp_path, 6) as trial, serving(trial.local, *trial.homes):
        (trial.homes[5].path / "hold").touch()
        shown = await trial.ask(asked(MEAN, deadline_seconds=1.0))
        assert values(shown) == [[pytest.approx(np.concatenate([ages_of(place) for place in range(5)]).mean())]]
        assert told(shown)["site-5"] == ("absent", "")
        assert Answers.from_json(shown.answer_json).num_sites == 5
        # Test 26: a cohort that differs by one site from one that was answered, without noise.
        (trial.homes[5].path / "hold").unlink()
        refused = await trial.ask(asked(COUNT))
        assert refused.state == "failed"
        assert told(refused)["site-0"] == ("refused", "PolicyRefused")
        assert "the 6 sites differ by 1 from 5 that were answered before" in refused.sites[0].reason
        with pytest.raises(PolicyRefused, match="differ by 1"):
            answers_of(refused)
        # With noise the difference of two answers is nobody's.
        noisy = await trial.ask(asked(COUNT, noise={"multiplier": 1.0}))
        assert noisy.state == "answered"


async def test_who_was_asked_before_is_remembered_over_a_restart(tmp_path):
    async with query_trial(tmp_path, 6) as trial:
        async with serving(trial.local, *trial.homes[:5]):
            assert (await trial.ask(asked(COUNT))).state == "answered"
            assert (await trial.ask(asked(COUNT))).state == "answered"  # the same sites again
        async with serving(trial.local, *trial.homes):
            refused = await trial.ask(asked(MEAN))
        assert "differ by 1" in refused.sites[0].reason


async def test_those_who_differ_may_tell_the_server_what_they_sent(tmp_path):
    """Of three sites that are not in the second sum, one may be the server's: two are too few to hide in."""
    async with query_trial(tmp_path, 8) as trial:
        async with serving(trial.local, *trial.homes):
            assert (await trial.ask(asked(COUNT))).state == "answered"
        async with serving(trial.local, *trial.homes[:5]):
            refused = await trial.ask(asked(COUNT))
        assert (
            "the 5 sites differ by 3 from 8 that were answered before, expected at least 4" in refused.sites[0].reason
        )


REFUSING = {
    "no policy": ("", "does not answer about the column 'age'"),
    "another column": ('\n[analytics]\ncolumns = ["sex"]\n', "does not answer about the column 'age'"),
    "too few records": (f"{POLICY}min_records = 1000\n", "than its min_records 1000"),
    "too few sites": (f"{POLICY}min_sites = 6\n", "expects at least 6"),
    "another kind": (f'{POLICY}kinds = ["mean"]\n', "of kind 'count'"),
    "more noise": (f"{POLICY}min_noise_multiplier = 1.0\n", "the noise multiplier is 0"),
    "a smaller sum": (f"{POLICY}\n[secure]\nmin_survivors = 9\n", "this site expects 9"),
}


@pytest.mark.parametrize(("policy", "words"), REFUSING.values(), ids=REFUSING)
async def test_a_site_whose_policy_forbids_it_is_left_out(tmp_path, policy, words):
    async with query_trial(tmp_path, 6, policies=[policy]) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(asked(COUNT))
    assert values(shown) == [[sum(len(ages_of(place)) for place in range(1, 6))]]
    assert told(shown)["site-0"][0] == "refused"
    assert words in shown.sites[0].reason
    assert str(len(ages_of(0))) not in shown.sites[0].reason


FAULTS = {
    "no column": ("return {'sex': sexes}", "ConfigError", "there is no column 'age'"),
    "text": ("return {'age': ['Zarathustra'] * 30}", "ConfigError", "something that is no number"),
    "an error": ("raise ValueError('Zarathustra is 40')", "TaskFailed", "failed with ValueError"),
    "no columns": ("return 7", "ConfigError", "returned a int, expected columns by name"),
}


@pytest.mark.parametrize(("body", "code", "words"), FAULTS.values(), ids=FAULTS)
async def test_records_that_cannot_be_read_do_not_end_a_site_and_are_told_to_nobody(tmp_path, body, code, words):
    async with query_trial(tmp_path, 6) as trial:
        source = f"def records(ages, sexes, people):\n    {body}\n"
        (trial.homes[0].path / "records.py").write_text(source)
        async with serving(trial.local, *trial.homes):
            shown = await trial.ask(asked(MEAN))
        everything = b"".join(path.read_bytes() for path in trial.local.home.folder.rglob("*") if path.is_file())
    assert shown.state == "answered"
    assert told(shown)["site-0"] == ("refused", code)
    assert words in shown.sites[0].reason
    assert b"Zarathustra" not in everything


async def test_too_few_sites_that_would_answer_end_a_query_at_once(tmp_path):
    async with query_trial(tmp_path, 5, policies=[""]) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(asked(MEAN))
    assert shown.state == "failed"
    assert "4 connected sites that the roster names would answer, expected at least 5; site-0 refused" in shown.reason
    with pytest.raises(PolicyRefused, match="site-0: query 'q': this site does not answer"):
        answers_of(shown)


async def test_without_a_roster_nobody_is_asked(tmp_path):
    async with query_trial(tmp_path, 5, signed=False) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(asked(MEAN))
    assert "foedus roster sign" in shown.reason
    assert not shown.sites
    with pytest.raises(RoundFailed, match="no roster"):
        answers_of(shown)


async def test_people_are_counted_once(tmp_path):
    async with query_trial(tmp_path) as trial:
        for home in trial.homes:
            home.config.write_text(home.config.read_text().replace("[records]", '[records]\nperson = "patient"'))
        async with serving(trial.local, *trial.homes):
            shown = await trial.ask(asked(COUNT))
    assert values(shown) == [[sum(-(-len(ages_of(place)) // 2) for place in range(5))]]


@pytest.mark.parametrize("kind", ["skellam", "discrete-gaussian"])
async def test_with_noise_the_answer_says_how_far_off_it_may_be_and_what_it_costs(tmp_path, kind):
    query = asked(
        {"kind": "histogram", "column": "age", "edges": [0, 120]}, COUNT, noise={"multiplier": 3.0, "kind": kind}
    )
    async with query_trial(tmp_path) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(query)
    found = Answers.from_json(shown.answer_json)
    truth = sum(len(ages_of(place)) for place in range(5))
    (inside, outside), (count,) = (answer.estimates for answer in found.answers)
    # Five sites, of which one may collude: the noise of each is a fourth of what is asked for.
    deviation = 3.0 * np.sqrt(2) * np.sqrt(5 / 4)
    assert inside.high - inside.low == pytest.approx(2 * 1.96 * deviation)
    for one, true in ((inside, truth), (outside, 0), (count, truth)):
        assert abs(one.value - true) < 7 * deviation
    assert 0 < found.epsilon < 3
    assert found.delta == 1e-6
    exact = [inside.value == truth, outside.value == 0, count.value == truth]
    assert not all(exact)


async def test_a_site_answers_until_its_budget_is_spent(tmp_path):
    noisy = asked(COUNT, noise={"multiplier": 4.0})
    once = SkellamSum(l2_sensitivity=1.0, l1_sensitivity=1.0, variance=16.0)
    limit = (epsilon([once], 1e-6) + epsilon([once, once], 1e-6)) / 2
    async with query_trial(tmp_path, 6, policies=[f"{POLICY}max_epsilon = {limit}\n"]) as trial:
        async with serving(trial.local, *trial.homes):
            first = await trial.ask(noisy)
            assert told(first)["site-0"] == ("accepted", "")
            assert Answers.from_json(first.answer_json).epsilon == pytest.approx(epsilon([once], 1e-6))
        async with serving(trial.local, *trial.homes):
            second, exact = await trial.ask(noisy), await trial.ask(asked(COUNT))
    for shown, cost in ((second, f"ε = {epsilon([once, once], 1e-6):.4g}"), (exact, "ε = inf")):
        assert shown.state == "answered"
        assert told(shown)["site-0"] == ("refused", "BudgetExhausted")
        assert cost in shown.sites[0].reason


async def test_what_the_server_keeps_of_an_answered_query(tmp_path):
    async with query_trial(tmp_path) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(asked(MEAN))
        store = trial.local.fed.queries.store
        events = [row["name"] for row in store.query("SELECT name FROM events WHERE name LIKE 'query_%' ORDER BY seq")]
        assert [events[0], events[1], events[-1]] == ["query_created", "query_asked", "query_answered"]
        assert store.query("SELECT * FROM secure_messages") == []
        listed = await trial.local.operator().ListQueries(operations_pb2.ListQueriesRequest())
    (one,) = listed.queries
    assert (one.id, one.state, one.query_json, one.answer_json) == (shown.id, "answered", "", "")


TREE = {"kind": "quantile", "column": "age", "low": 0, "high": 1, "height": 16}
TOO_MANY = json.dumps({"name": "q", "questions": [TREE, TREE]})


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("{}", ConfigError, "name is missing"),
        ("x" * 300_000, MessageTooLarge, "at most 262144"),
        (TOO_MANY, ConfigError, "at most 131072 are summed at once; ask for fewer bins"),
    ],
)
async def test_what_is_no_query_is_refused_when_it_is_submitted(tmp_path, text, error, words):
    async with loopback(tmp_path) as local:
        request = operations_pb2.SubmitQueryRequest(query_json=text)
        with pytest.raises(error, match=words):
            await typed(local.operator().SubmitQuery(request))
