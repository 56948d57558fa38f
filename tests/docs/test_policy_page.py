"""docs/operations.md has a row for every key of a site's policy, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from foedus.client_sdk.policy import Policy, TaskPolicy
from foedus.plan import PROTECTIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE.split("## A site's policy\n")[1].split("\n## ")[0]
ROWS = {
    key: (default, meaning) for key, default, meaning in re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", SECTION, re.M)
}


def test_every_key_is_there_and_no_other() -> None:
    assert list(ROWS) == list(Policy.model_fields)
    assert set(TaskPolicy.model_fields) == {"code_sha256"}
    assert "`code_sha256`" in ROWS["tasks"][1]


def test_the_defaults_are_those() -> None:
    usual = Policy()
    assert (ROWS["tasks"][0], usual.tasks) == ("none", {})
    assert (ROWS["hours"][0], usual.hours) == ("always", None)
    assert ROWS["smallest_cohort"][0] == str(usual.smallest_cohort)
    assert (ROWS["max_rounds"][0], usual.max_rounds) == ("no limit", None)
    assert ROWS["protections"][0] == "all five"
    assert usual.protections == PROTECTIONS == tuple(re.findall(r"`\"(\w+)\"`", ROWS["protections"][1]))
    assert (ROWS["analytics"][0], usual.analytics.columns) == ("no question", ())
