"""The rules that make one update of many: pure maths on arrays, streamed by blocks of columns."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Aggregate", "Aggregator", "Rule", "rule"]

if TYPE_CHECKING:
    from .aggregate import Aggregate
    from .aggregator import Aggregator
    from .lookup import rule
    from .protocols import Rule

_HOMES = {"Aggregate": ".aggregate", "Aggregator": ".aggregator", "Rule": ".protocols", "rule": ".lookup"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foedus.aggregators' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
