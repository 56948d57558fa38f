"""What docs/operations.md shows about secure sums is what plans and policies take."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from foedus.client_sdk.policy import Policy, SumSettings
from foedus.plan import Plan, SecureAggregation

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE.split("## Secure sums\n")[1].split("\n## ")[0]
PLAN, POLICY = (tomllib.loads(block) for block in re.findall(r"^```toml\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE))


def test_the_plan_is_one_that_five_sites_of_six_can_finish() -> None:
    base = {"name": "n", "task": "t", "rounds": 1, "training": {"steps": 1}}
    plan = Plan.model_validate({**base, "aggregator": {"name": "mean"}, **PLAN})
    assert (plan.protection, plan.cohort.quorum, plan.secure.min_sites) == ("masks", 5, 5)


def test_every_key_of_a_plan_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", SECTION.split("| In `[secure]` |")[1], re.MULTILINE)
    assert [key for key, _ in rows] == list(SecureAggregation.model_fields)
    for key, default in rows:
        if re.fullmatch(r"\d+|false|`\"\w+\"`", default):
            shown = tomllib.loads(f"{key} = {default.strip('`')}")
            assert getattr(SecureAggregation(), key) == shown[key]


def test_the_policy_shows_the_defaults() -> None:
    assert Policy.model_validate(POLICY).secure == SumSettings()
    assert set(POLICY["secure"]) == set(SumSettings.model_fields)


def test_what_is_quoted_is_what_is_said() -> None:
    code = "".join(
        path.read_text()
        for folder in ("server", "client_sdk", "privacy")
        for path in (Path(__file__).resolve().parents[2] / folder).rglob("*.py")
    )
    for quoted in (
        "; no roster names any",
        " that the roster names",
        "did not open",
        "resume once more sites are back",
    ):
        assert quoted in SECTION
        assert quoted in code
