"""docs/operations.md names the phases that the server times."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_phases_are_the_ones_that_are_timed() -> None:
    code = (ROOT / "server" / "coordinators" / "synchronous.py").read_text()
    timed = re.findall(r'_timed\(fed, "(\w+)"\)', code)
    (row,) = re.findall(
        r"^\| `foedus_round_phase_duration_seconds.*", (ROOT / "docs" / "operations.md").read_text(), re.M
    )
    assert re.findall(r"`(\w+)`", row) == timed
    assert len(timed) == 3
