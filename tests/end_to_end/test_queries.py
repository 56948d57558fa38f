"""Questions to real sites: the answer is that over all their records, and the server sees none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from foedus.privacy.analytics.answer import Answer, Answers
from foedus.protos.v1 import operations_pb2
from query_federation import ages_of, asked, query_trial, sexes_of
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
