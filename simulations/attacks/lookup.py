"""Attacks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...errors import ConfigError
from ...named import nearest, require_parameters
from .backdoor import scaled_backdoor
from .broken import huge, non_finite
from .collusion import collusion
from .farthest import min_max, min_sum
from .free_rider import free_rider
from .knowledge import Attack, Reals
from .little import a_little_is_enough
from .mimic import mimic
from .noise import gaussian
from .opposing import inner_product_manipulation, sign_flip

FORMULAS: Mapping[str, Callable[..., Reals]] = {
    "alie": a_little_is_enough,
    "collusion": collusion,
    "free-rider": free_rider,
    "gaussian": gaussian,
    "huge": huge,
    "ipm": inner_product_manipulation,
    "mimic": mimic,
    "min-max": min_max,
    "min-sum": min_sum,
    "non-finite": non_finite,
    "scaled-backdoor": scaled_backdoor,
    "sign-flip": sign_flip,
}


def attack(name: str, **parameters: Any) -> Attack:
    """The attack called ``name``, set up with the parameters of its formula.

    ::

        malicious_AD = attack("alie", z=1.5)(honest_HD, num_attackers=2, n=10, seed=0)

    Raises:
        ConfigError: no such attack, or it does not take these parameters.
    """
    if name not in FORMULAS:
        raise ConfigError(f"there is no attack {name!r}", hint=nearest(name, FORMULAS))
    formula = FORMULAS[name]
    require_parameters(f"attack {name!r}", partial(formula, None), parameters)
    return Attack(partial(formula, **parameters))
