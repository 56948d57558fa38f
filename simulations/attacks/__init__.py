"""What malicious sites send: the published attacks, as functions of what the attackers know.

``attack("ipm", epsilon=0.5)`` gives an attack for a loop over arrays; ``Malicious`` makes an
ordinary site's task send it in a real run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Attack", "Malicious", "attack", "label_flip", "weight_inflation"]

if TYPE_CHECKING:
    from .counts import weight_inflation
    from .knowledge import Attack
    from .labels import label_flip
    from .lookup import attack
    from .malicious import Malicious

_HOMES = {
    "Attack": ".knowledge",
    "Malicious": ".malicious",
    "attack": ".lookup",
    "label_flip": ".labels",
    "weight_inflation": ".counts",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foedus.simulations.attacks' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
