"""Federated learning for sites that must not share data.

The public face: what a site's or researcher's own code imports. Everything else is reached
through its folder (``foedus.server``, ``foedus.client_sdk``, ``foedus.aggregators``, …).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["ArrayTask", "FoedusError", "LocalResult", "Site", "TorchTask", "TrainingJob", "sklearn_task"]

if TYPE_CHECKING:
    from .client_sdk.array_task import ArrayTask
    from .client_sdk.site import Site
    from .client_sdk.sklearn_task import sklearn_task
    from .client_sdk.task import LocalResult, TrainingJob
    from .client_sdk.torch_task import TorchTask
    from .errors import FoedusError

_HOMES = {
    "ArrayTask": ".client_sdk.array_task",
    "FoedusError": ".errors",
    "LocalResult": ".client_sdk.task",
    "Site": ".client_sdk.site",
    "TorchTask": ".client_sdk.torch_task",
    "TrainingJob": ".client_sdk.task",
    "sklearn_task": ".client_sdk.sklearn_task",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ``import foedus`` stays instant and torch optional."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foedus' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
