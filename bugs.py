"""Where a command leaves the details of a bug, for whoever reports it."""

from __future__ import annotations

import platform
import tempfile
import traceback
from pathlib import Path

from . import __version__


def write_bug_report(error: BaseException) -> Path:
    """Write the trace and the versions to a file of its own; its path."""
    trace = "".join(traceback.format_exception(error))
    text = f"foedus {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n{trace}"
    with tempfile.NamedTemporaryFile("w", prefix="foedus-bug-", suffix=".txt", delete=False) as file:
        file.write(text)
    return Path(file.name)
