"""A query's file: what it may hold, and one sentence for what it may not."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from foedus.configuration import load, validate
from foedus.errors import ConfigError
from foedus.privacy.analytics.query import MAX_STEPS, Query

PAGE = Path(__file__).resolve().parents[3] / "docs" / "secure-aggregation.md"
FILE = """
name = "How old are our patients?"
min_sites = 6
records_per_person = 2

[question]
kind = "quantile"
column = "age"
low = 0
high = 120
at = [0.25, 0.5, 0.75]

[noise]
multiplier = 2.5
"""


def test_a_file_is_a_query(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(FILE)
    found = load(Query, tmp_path / "q.toml")
    assert found.min_sites == 6
    (question,) = found.questions
    assert question.kind == "quantile"
    assert found.noise is not None
    assert found.noise.kind == "skellam"
    assert found.shape.num_counters == 2**11 - 1
    assert found.l1_sensitivity == 2 * 11
    assert found.l2_sensitivity == pytest.approx(2 * math.sqrt(11))


def test_the_query_on_the_page_is_one() -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text().split("## Analytics\n")[1], re.DOTALL | re.MULTILINE)
    found = validate(Query, tomllib.loads(shown), "the page")
    (question,) = found.questions
    assert question.kind == "quantile"
    for keys in (found.model_dump(), question.model_dump()):
        assert all(f"`{key}`" in PAGE.read_text() or key in shown for key in keys)


def table(kind: str = "mean", **changes: Any) -> dict[str, Any]:
    question: dict[str, Any] = {"kind": kind, "column": "age"}
    if kind in ("sum", "mean", "variance", "quantile"):
        question |= {"low": 0, "high": 120}
    if kind == "histogram":
        question |= {"edges": [0, 1]}
    if kind == "top":
        question |= {"categories": ["a", "b"]}
    outer = {name: changes.pop(name) for name in list(changes) if name in Query.model_fields}
    return {"name": "q", "question": question | changes} | outer


@pytest.mark.parametrize("kind", ["count", "sum", "mean", "variance", "histogram", "top", "quantile"])
def test_sensitivities_in_steps(kind: str) -> None:
    found = validate(Query, table(kind, records_per_person=3), "q.toml")
    alike = {"sum": (2, 60), "mean": (2, 60), "variance": (3, 3600)}
    if kind in alike:
        number, largest = alike[kind]
        expected = (number * largest * 3, math.sqrt(number) * largest * 3)
    elif kind == "quantile":
        expected = (33, 3 * math.sqrt(11))
    else:
        expected = (3, 3)
    assert (found.l1_sensitivity, found.l2_sensitivity) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (table(low=120, high=0), "low 120 is not below high 0"),
        (table("quantile", low=1, high=1), "low 1 is not below high 1"),
        (table(scale=0), "greater than 0"),
        (table(scale=0.001), "raise the scale"),
        (table(scale=1e20), "lower the scale"),
        (table(high=math.nan), "finite"),
        (table("variance", scale=1e4), "lower the scale"),
        (table("histogram", edges=[0, 2, 1]), "do not ascend"),
        (table("histogram", edges=[0]), "at least 2"),
        (table("top", categories=["a", "a"]), "named twice"),
        (table("top", k=0), "greater than or equal to 1"),
        (table("quantile", at=[1.0]), "less than 1"),
        (table("quantile", height=17), "less than or equal to 16"),
        (table("median"), "median"),
        (table(min_sites=2), "greater than or equal to 3"),
        (table(records_per_person=0), "greater than or equal to 1"),
        (table(noise={"multiplier": 0}), "greater than 0"),
        (table(noise={"multiplier": 1, "kind": "laplace"}), "skellam"),
        (table(seed=1), "seed is not a known key"),
        (table(questions=[]), "not both"),
        ({"name": "q", "questions": []}, "at least 1"),
        ({"name": "q"}, "questions is missing"),
        ({"name": "q", "questions": 2 * [table("quantile", height=16)["question"]]}, "at most 131072 are summed"),
    ],
)
def test_what_cannot_be_asked(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=r"q\.toml: ") as caught:
        validate(Query, values, "q.toml")
    assert words in str(caught.value)


def test_the_most_that_fits_a_counter() -> None:
    found = validate(Query, table("variance", scale=100, max_records_per_site=MAX_STEPS // 6000**2), "q.toml")
    assert found.most_per_site <= MAX_STEPS
    with pytest.raises(ConfigError, match=f"max_records_per_site to {MAX_STEPS // 6000**2}"):
        validate(Query, table("variance", scale=100, max_records_per_site=MAX_STEPS // 6000**2 + 1), "q.toml")


def test_queries_alike_have_one_digest_and_others_another() -> None:
    first = validate(Query, table(), "a")
    assert first.digest == validate(Query, table(scale=1.0, min_sites=5), "b").digest
    others = [table("sum"), table(high=121), table(min_sites=6), table(noise={"multiplier": 1.0}), table(name="r")]
    digests = {first.digest, *(validate(Query, other, "c").digest for other in others)}
    assert len(digests) == 1 + len(others)
