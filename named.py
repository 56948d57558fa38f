"""Things that plans and commands ask for by name: what exists, what it takes, and what was meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import ConfigError


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for whoever asked for ``name``: the known name most like it, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none'}"


def require_parameters(
    what: str, make: Callable[..., Any], parameters: Mapping[str, Any], beside: Iterable[str] = ()
) -> None:
    """Check that ``make`` can be called with these parameters alone.

    ``beside`` names what the caller may also have meant, since somebody else takes it.

    Raises:
        ConfigError: it takes no such parameter, or one that it needs is missing.
    """
    signature = inspect.signature(make)
    try:
        signature.bind(**parameters)
    except TypeError as error:
        unknown = [key for key in parameters if key not in signature.parameters]
        missing = [
            key
            for key, parameter in signature.parameters.items()
            if parameter.default is parameter.empty and key not in parameters
        ]
        hint = nearest(unknown[0], [*signature.parameters, *beside]) if unknown else f"set {' and '.join(missing)}"
        raise ConfigError(f"{what}: {error}", hint=hint) from None
