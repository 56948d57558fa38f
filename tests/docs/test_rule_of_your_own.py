"""The rule that the architecture page writes does what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from foedus.aggregators.aggregator import Aggregator
from foedus.aggregators.decision import Decision, WeightedSum
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.protocols import require_updates

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_the_rule_on_the_page_runs() -> None:
    block = re.search(r"```python\n(@dataclass.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert block is not None
    names: dict[str, Any] = {
        "dataclass": dataclass,
        "ClassVar": ClassVar,
        "np": np,
        "Decision": Decision,
        "WeightedSum": WeightedSum,
        "Geometry": Geometry,
        "require_updates": require_updates,
    }
    exec(block[1], names)  # noqa: S102  (our own page)
    result = Aggregator("nearest", names["Nearest"](1))(np.array([[3.0, 4.0], [1.0, 0.0], [2.0, 2.0]]))
    assert (result.selected, result.rejected) == ((1,), (0, 2))
    np.testing.assert_array_equal(result.update_D, [1, 0])
