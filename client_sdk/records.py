"""A site's records: columns by name, read by the site's own function, never sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, TaskFailed
from ..privacy.analytics.answer import Integers
from ..privacy.analytics.counters import Values, encode
from ..privacy.analytics.query import Query
from .config import RecordsEntry
from .loading import load_attribute


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Columns of values, one for each record.

    Attributes:
        columns: by name.
        people_R: whose record each is; None where each is of another person.
    """

    columns: Mapping[str, Values] = field(repr=False)
    people_R: Values | None = field(default=None, repr=False)

    def counted(self, query: Query) -> Integers:
        """What this site adds to the sum of a query: K counters, int64.

        Raises:
            ConfigError: a column is missing, or is not as the query needs it.
            InvalidUpdate: there are more records than the query takes of a site.
        """
        return encode(query, self.columns, self.people_R)


def read_records(entry: RecordsEntry, base_folder: Path) -> Records:
    """Call the site's function. It may take its time: run it in a thread.

    Raises:
        ConfigError: it is missing, or returns no columns.
        TaskFailed: it raised an error, which is the cause of this one and is told to nobody else.
    """
    function = load_attribute(entry.entry, base_folder)
    if not callable(function):
        raise ConfigError(f"{entry.entry} is a {type(function).__name__}, expected a function that returns columns")
    columns = _columns(entry.entry, _called(entry.entry, lambda: function(**entry.parameters)))
    if entry.person is None:
        return Records(columns)
    if entry.person not in columns:
        raise ConfigError(f"{entry.entry} returns no column {entry.person!r}", hint="correct person under [records]")
    return Records(columns, columns[entry.person])


def _called(entry: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        # What a parser says of a record may hold the record.
        raise TaskFailed(f"{entry} failed with {type(error).__name__}; this site's log says why") from error


def _columns(entry: str, found: Any) -> dict[str, Values]:
    """Mappings as they are, and what looks like one, such as a data frame."""
    if not callable(getattr(found, "items", None)):
        raise ConfigError(f"{entry} returned a {type(found).__name__}, expected columns by name")
    columns: dict[str, Values] = {
        str(name): values if isinstance(values, list) else np.asarray(values) for name, values in found.items()
    }
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim != 1:
            raise ConfigError(f"{entry}: column {name!r} has {values.ndim} dimensions, expected 1")
    return columns
