"""Rules by name, foedus's own and those that other packages bring.

A package brings a rule with an entry point in the group ``foedus.aggregators``: its name is the
rule's, its object is called with the rule's parameters and returns the rule.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any, Protocol

import numpy.typing as npt

from ..errors import ConfigError
from .aggregate import Aggregate
from .mean import Mean
from .rows import Rows

GROUP = "foedus.aggregators"

_RULES: dict[str, Callable[..., Rule]] = {"mean": Mean}


class Rule(Protocol):
    """A robust or plain way to make one update of many."""

    def __call__(self, updates_ND: Rows | npt.ArrayLike, num_examples_N: npt.ArrayLike | None = None) -> Aggregate:
        """Combine a row store or an N x D array; counts of None weigh every update the same."""
        ...


def rule(name: str, **parameters: Any) -> Rule:
    """The rule called ``name``, set up with its parameters.

    foedus's own rules come first: a package cannot take the place of "mean".

    Raises:
        ConfigError: no such rule, or it does not take these parameters.
    """
    make = _RULES.get(name) or _from_packages(name)
    _check(name, make, parameters)
    return make(**parameters)


def _from_packages(name: str) -> Callable[..., Rule]:
    found = entry_points(group=GROUP)
    if name not in found.names:
        known = sorted({*_RULES, *found.names})
        raise ConfigError(f"there is no aggregator {name!r}", hint=_nearest(name, known))
    make: Callable[..., Rule] = found[name].load()
    return make


def _check(name: str, make: Callable[..., Rule], parameters: dict[str, Any]) -> None:
    signature = inspect.signature(make)
    try:
        signature.bind(**parameters)
    except TypeError as error:
        unknown = [key for key in parameters if key not in signature.parameters]
        hint = _nearest(unknown[0], signature.parameters) if unknown else ""
        raise ConfigError(f"aggregator {name!r}: {error}", hint=hint) from None


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none'}"
