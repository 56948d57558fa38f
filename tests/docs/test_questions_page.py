"""The files that operations.md shows for questions are files that we take."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from foedus.client_sdk.config import SiteConfig
from foedus.client_sdk.policy import Policy
from foedus.client_sdk.query_settings import QuerySettings
from foedus.configuration import validate
from foedus.privacy.analytics.query import Query

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE.split("## Questions\n")[1].split("\n## ")[0]
BLOCKS = [tomllib.loads(block) for block in re.findall(r"^```toml\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)]


def test_the_query_and_the_sites_files() -> None:
    query, site, policy = BLOCKS
    asked = validate(Query, query, "the page")
    config = validate(SiteConfig, site | {"name": "a", "federation": "f", "server": "h:1"}, "the page")
    assert config.records is not None
    allowed = validate(Policy, policy, "the page").analytics
    allowed.require(asked)
    assert set(policy["analytics"]) | {"max_epsilon"} == set(QuerySettings.model_fields)
    assert "# max_epsilon = " in SECTION
    assert QuerySettings().min_records == 5
    assert "5 by default" in SECTION
