"""Exact test vectors of the robust rules: inputs that float32 holds, results to float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "aggregators" / "robust.json").read_text())
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in VECTORS["cases"]}
SPECIAL: dict[str, dict[str, Any]] = {case["name"]: case for case in VECTORS["special"]}


def rows(case: dict[str, Any]) -> np.ndarray:
    """The updates of a case, float64 N x D; "nan" and "inf" are what they say."""
    return np.array(case["rows"], np.float64)


def with_rule(rule: str) -> list[str]:
    """The names of the cases that say what the rule gives."""
    return [name for name, case in CASES.items() if rule in case["expect"]]
