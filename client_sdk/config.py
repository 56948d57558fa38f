"""``site.toml``: where the server is, and which tasks are installed at this site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeInt

from ..configuration import Settings
from ..errors import ConfigError
from ..plan import Name
from ..protos.address import split_address


def _address(address: str) -> str:
    try:
        split_address(address)
    except ConfigError as error:
        raise ValueError(f"{error}; {error.hint}") from None
    return address


Address = Annotated[str, AfterValidator(_address)]


class TaskEntry(Settings):
    """Where a task's code is: ``package.module:attribute`` or ``path/to/file.py:attribute``.

    A path is relative to the site's home. The attribute is a task, or something that returns one
    when called with ``parameters``.
    """

    entry: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_.]*$")]
    parameters: dict[str, Any] = Field(default_factory=dict)


class RecordsEntry(Settings):
    """Where this site's records come from, about which it may be asked.

    ``entry`` is as a task's: a function that is called with ``parameters`` for each query, and returns columns by
    name: lists or 1-d arrays of equal length. ``person`` names the column that says whose record each is.
    """

    entry: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_.]*$")]
    parameters: dict[str, Any] = Field(default_factory=dict)
    person: str | None = None


class SiteConfig(Settings):
    """One site. ``keep_free_bytes`` is how much of the disk the doctor wants to find free."""

    name: Name
    federation: Name
    server: Address
    tasks: dict[Name, TaskEntry] = Field(default_factory=dict)
    records: RecordsEntry | None = None
    keep_free_bytes: NonNegativeInt = 1 << 30
    log_level: Literal["debug", "info", "warning", "error"] = "info"


def site_toml(name: str, federation: str, server: str, tasks: Mapping[str, TaskEntry]) -> str:
    """The text of a new ``site.toml``.

    Raises:
        ConfigError: a parameter is nothing that TOML can hold.
    """
    lines = [f"name = {quoted(name)}", f"federation = {quoted(federation)}", f"server = {quoted(server)}"]
    for task, entry in tasks.items():
        lines += ["", f"[tasks.{quoted(task)}]", f"entry = {quoted(entry.entry)}"]
        if entry.parameters:
            lines.append(f"parameters = {toml_value(entry.parameters)}")
    return "\n".join(lines) + "\n"


def records_toml(entry: RecordsEntry) -> str:
    """The text that names a site's records, to go behind what is in ``site.toml``.

    Raises:
        ConfigError: a parameter is nothing that TOML can hold.
    """
    lines = ["", "[records]", f"entry = {quoted(entry.entry)}"]
    if entry.person is not None:
        lines.append(f"person = {quoted(entry.person)}")
    if entry.parameters:
        lines.append(f"parameters = {toml_value(entry.parameters)}")
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """A value as TOML on one line.

    Raises:
        ConfigError: TOML has no such value.
    """
    match value:
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case dict():
            pairs = ", ".join(f"{quoted(str(key))} = {toml_value(inner)}" for key, inner in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case _:
            raise ConfigError(f"{value!r:.80} cannot be written as TOML", hint="use text, numbers, lists and tables")


def quoted(text: str) -> str:
    """A TOML basic string. TOML escapes as JSON does, save for DEL, which it wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
