"""docs/errors.md lists every error, with what errors.py says of it."""

from __future__ import annotations

import re
from pathlib import Path

from foedus import errors
from foedus.plan import Cohort
from foedus.server.config import Limits

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "errors.md").read_text()


def rows() -> dict[str, list[str]]:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
    ]
    return {row[0].strip("`"): row[1:] for row in cells if row[0].startswith("`")}


def test_every_error_is_explained_and_no_other() -> None:
    ours = {name for name, error in errors.error_classes().items() if error.__module__ == "foedus.errors"}
    assert set(rows()) == ours


def test_each_row_says_what_the_code_does() -> None:
    for name, (status, grpc_status, cause, mend) in rows().items():
        error = errors.error_classes()[name]
        assert int(status) == error.exit_status, name
        assert grpc_status == error.grpc_status, name
        assert cause == (error.__doc__ or "").strip().splitlines()[0], name
        assert mend.endswith("."), name


def test_every_exit_status_is_explained() -> None:
    statuses = {value for name, value in vars(errors).items() if name.startswith("EXIT_")} | {0}
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == statuses


def test_the_settings_that_it_names_exist() -> None:
    named = re.findall(r"`(cohort|limits)\.(\w+)`", PAGE)
    assert {section for section, _ in named} == {"cohort", "limits"}
    for section, key in named:
        settings = Cohort if section == "cohort" else Limits
        assert key in settings.model_fields, f"{section}.{key}"
