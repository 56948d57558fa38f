"""What commands print: data to stdout, as text for people or one JSON envelope for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

JSON_SCHEMA = 1


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json`` to a command, as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def emit(data: object, text: str, *, as_json: bool) -> None:
    """Print ``data`` in the envelope, or ``text``."""
    click.echo(json.dumps({"schema": JSON_SCHEMA, "status": "ok", "data": data}) if as_json else text)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Plain columns, wide enough for what is in them."""
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)


def moment(unix_seconds: float) -> str:
    """A time as people read it, in UTC; "never" for 0."""
    if not unix_seconds:
        return "never"
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def numbers(metrics: dict[str, float]) -> str:
    """Metrics on one line."""
    return " ".join(f"{name}={value:.4g}" for name, value in sorted(metrics.items()))
