"""docs/operations.md names every rule with the parameters it takes, and its settings are ones that are taken."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
from foedus.aggregators import lookup
from foedus.plan import AggregatorPlan, Plan
from foedus.server.config import Reputation
from foedus.server.judging import require_coherent

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE.split("## Aggregators\n")[1].split("\n## ")[0]
ROWS = {
    cells[0].strip("`"): set(re.findall(r"`(\w+)`", cells[1]))
    for cells in (
        [cell.strip() for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if line.startswith("| `")
    )
}
BLOCKS = [tomllib.loads(block) for block in re.findall(r"^```toml\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)]
PLANS = [block for block in BLOCKS if "aggregator" in block]


def test_every_rule_is_there_and_no_other() -> None:
    assert set(ROWS) == set(lookup._RULES)


@pytest.mark.parametrize("name", sorted(lookup._RULES))
def test_with_the_keys_of_a_plan_that_it_takes(name: str) -> None:
    takes = set(inspect.signature(lookup._RULES[name]).parameters)
    assert takes & set(AggregatorPlan.model_fields) == ROWS[name]


@pytest.mark.parametrize("block", PLANS, ids=[block["aggregator"]["name"] for block in PLANS])
def test_each_plan_that_is_shown_can_work(block: dict[str, object]) -> None:
    require_coherent(Plan.model_validate({"name": "n", "task": "t", "rounds": 1, "training": {"steps": 1}, **block}))


def test_the_settings_that_are_shown_exist() -> None:
    (shown,) = [block["reputation"] for block in BLOCKS if "reputation" in block]
    assert Reputation.model_validate(shown).suspend_above == shown["suspend_above"]
    assert set(shown) == set(Reputation.model_fields)
