"""Logs: events in the past tense, with fields. Text on a terminal, one JSON object a line elsewhere.

What a field may show is an allow-list: numbers, short text, paths, errors and small collections
of them. Secrets show as ``***``, arrays and bytes by their size, anything else by its type; so a
model, an update or a key cannot reach a log by accident. Text is escaped: no value can forge a line.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal, TextIO

from .errors import ConfigError, FoedusError

LEVELS = ("debug", "info", "warning", "error")
MAX_TEXT = 2_000
MAX_ITEMS = 32
MAX_DEPTH = 4
HIDDEN = "***"

_HANDLER = "foedus"
_SECRET_NAMES = frozenset({"secret", "token", "password", "passphrase", "private_key", "key_pem", "invitation"})
_PEM_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_OWN_KEYS = frozenset({"time", "level", "logger", "event", "message", "trace"})
_BARE = re.compile(r"[^\s=\"'\\]+")

Format = Literal["auto", "text", "json"]


def configure(level: str = "info", stream: TextIO | None = None, format: Format = "auto") -> None:
    """Send logs to ``stream`` (the standard error by default), replacing what an earlier call set up.

    ``level`` is foedus's own; other libraries are heard from warnings upwards.

    Raises:
        ConfigError: the level or the format is none of the known ones.
    """
    if format not in ("auto", "text", "json"):
        raise ConfigError(f"there is no log format {format!r}", hint="use auto, text or json")
    set_level(level)
    output = sys.stderr if stream is None else stream
    as_text = format == "text" or (format == "auto" and output.isatty())
    handler = logging.StreamHandler(output)
    handler.set_name(_HANDLER)
    handler.setFormatter(TextLines() if as_text else JsonLines())
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)


def set_level(level: str) -> None:
    """Change foedus's level from now on.

    Raises:
        ConfigError: the level is none of ``LEVELS``.
    """
    if level.lower() not in LEVELS:
        raise ConfigError(f"there is no log level {level!r}", hint=f"use one of {', '.join(LEVELS)}")
    logging.getLogger("foedus").setLevel(level.upper())


def log_event(
    logger: logging.Logger, event: str, /, level: int = logging.INFO, error: BaseException | None = None, **fields: Any
) -> None:
    """Log something that happened, such as ``log_event(log, "round_committed", run=run, round=3)``.

    ``error`` adds the error's code and message; a bug (any error but ours) comes with its trace.
    """
    if not logger.isEnabledFor(level):
        return
    if error is not None:
        fields["error"] = error.code if isinstance(error, FoedusError) else type(error).__name__
        fields["reason"] = str(error)
    trace = None if error is None or isinstance(error, FoedusError) else (type(error), error, error.__traceback__)
    logger.log(level, event, extra={"fields": fields}, exc_info=trace, stacklevel=2)


class JsonLines(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] | None = getattr(record, "fields", None)
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message" if fields is None else "event": _message(record),
        }
        for name, value in (fields or {}).items():
            line[f"{name}_" if name in _OWN_KEYS else name] = _field(name, value)
        if record.exc_info:
            line["trace"] = _PEM_KEY.sub(HIDDEN, self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, allow_nan=False)


class TextLines(logging.Formatter):
    """A record as a line for the eye: time, level, event, name=value."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        words = [_time(record), f"{record.levelname.lower():7}", _message(record)]
        words += [f"{name}={_word(_field(name, value))}" for name, value in fields.items()]
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + _PEM_KEY.sub(HIDDEN, self.formatException(record.exc_info))
        return line


def render(value: Any, depth: int = 0) -> Any:
    """What a log may show of ``value``: text, a number, a truth value, None, or a list or dict of these."""
    if hasattr(value, "reveal"):
        return HIDDEN
    if hasattr(value, "shape") and hasattr(value, "dtype") and tuple(value.shape):
        return f"<{value.dtype} {'x'.join(str(length) for length in value.shape)}>"
    if isinstance(value, Enum):
        return render(value.value, depth)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, str | PurePath | BaseException):
        return _clean(str(value))
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        shown = {
            _clean(str(name)): _field(str(name), item, depth + 1) for name, item in list(value.items())[:MAX_ITEMS]
        }
        return shown if len(value) <= MAX_ITEMS else shown | {"…": f"{len(value) - MAX_ITEMS} more"}
    if depth < MAX_DEPTH and isinstance(value, Sequence | Set):
        listed = [render(item, depth + 1) for item in list(value)[:MAX_ITEMS]]
        return listed if len(value) <= MAX_ITEMS else [*listed, f"… {len(value) - MAX_ITEMS} more"]
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return render(value.item(), depth)
    return f"<{type(value).__name__}>"


def _field(name: str, value: Any, depth: int = 0) -> Any:
    return HIDDEN if name.lower() in _SECRET_NAMES and value else render(value, depth)


def _message(record: logging.LogRecord) -> str:
    if not record.args:
        return str(render(record.msg))
    arguments: Any
    if isinstance(record.args, Mapping):
        arguments = {name: _field(str(name), value) for name, value in record.args.items()}
    else:
        arguments = tuple(render(value) for value in record.args)
    try:
        return _clean(str(record.msg) % arguments)
    except (TypeError, ValueError):
        # A library asked for a number where the allow-list left text; its message matters more.
        return _clean(str(record.msg)) + f" {arguments}"


def _clean(text: str) -> str:
    text = _PEM_KEY.sub(HIDDEN, text)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… ({len(text) - MAX_TEXT} characters more)"
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
