"""TOML files into frozen pydantic models, with errors that name file, key, value and mend."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import ConfigError

MAX_CONFIG_BYTES = 1 << 20


class Settings(BaseModel):
    """Base of every configuration model: immutable, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


S = TypeVar("S", bound=BaseModel)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ConfigError: the file is missing, too large, or not TOML.
    """
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_CONFIG_BYTES} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def load(model: type[S], path: Path) -> S:
    """Read and validate a TOML file.

    Raises:
        ConfigError: as ``read_toml`` and ``validate``.
    """
    return validate(model, read_toml(path), str(path))


def validate(model: type[S], values: Mapping[str, Any], source: str) -> S:
    """Validate values read from ``source``.

    Raises:
        ConfigError: with the first fault, its key, the value seen and, for an unknown key, the
            nearest known one.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _first_fault(model, error, source) from None


def validate_json(model: type[S], text: str, source: str) -> S:
    """Validate JSON text, as ``validate``."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise _first_fault(model, error, source) from None


def _first_fault(model: type[BaseModel], error: ValidationError, source: str) -> ConfigError:
    fault = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in fault["loc"])
    hint = ""
    if fault["type"] == "extra_forbidden":
        message = f"{source}: {key} is not a known key"
        near = difflib.get_close_matches(str(fault["loc"][-1]), sorted(_keys(model)), 1)
        hint = f"did you mean {near[0]}?" if near else "remove it"
    elif fault["type"] == "missing":
        message = f"{source}: {key} is missing"
        hint = f"add {key} = …"
    else:
        reason = fault["msg"].removeprefix("Value error, ")
        seen = fault.get("input")
        shown = "" if isinstance(seen, Mapping) or seen is None else f" (got {seen!r:.80})"
        message = f"{source}: {key or 'the file'}: {reason}{shown}"
    return ConfigError(message, hint=hint)


def _keys(model: type[BaseModel], seen: frozenset[type] = frozenset()) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(name)
        for inner in _models_in(field.annotation):
            if inner not in seen:
                found |= _keys(inner, seen | {model})
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in getattr(annotation, "__args__", ()) for m in _models_in(part)]
