"""The two commands a newcomer types fail with a sentence, and continuous integration with pytest's own status."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile beside fakes of everything that it calls, which write down how they were called."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    fake = script(tmp_path / "fake", 'echo "$(basename "$0") $* DEMO_JSON=$DEMO_JSON" >> calls')
    make_venv = f'mkdir -p "$3/bin"; for tool in python pip pytest foedus; do cp "{fake}" "$3/bin/$tool"; done'
    script(tmp_path / "python", f'[ "$1 $2" = "-m venv" ] || exit 0; {make_venv}')
    return tmp_path


def calls(checkout: Path) -> list[str]:
    path = checkout / "calls"
    return [line.rpartition(" DEMO_JSON=")[0] for line in path.read_text().splitlines()] if path.exists() else []


def test_demo_makes_the_environment_once(checkout: Path) -> None:
    install = "pip install --quiet --disable-pip-version-check -c constraints.txt -e .[server,torch]"
    for expected in ([install, "foedus demo heart"], [install, "foedus demo heart", "foedus demo heart"]):
        made = run(checkout, "make", "PYTHON=./python", "demo")
        assert made.returncode == 0, made.stderr
        assert calls(checkout) == expected
    os.utime(checkout / "constraints.txt", (4e9, 4e9))
    run(checkout, "make", "PYTHON=./python", "demo")
    assert calls(checkout)[-2:] == [install, "foedus demo heart"]


@pytest.mark.parametrize("argument", [True, False])
def test_demo_passes_the_json_path_on(checkout: Path, argument: bool) -> None:
    if argument:
        run(checkout, "make", "PYTHON=./python", "demo", "DEMO_JSON=out.json")
    else:
        run(checkout, "make", "PYTHON=./python", "demo", DEMO_JSON="out.json")
    assert (checkout / "calls").read_text().splitlines()[-1] == "foedus demo heart DEMO_JSON=out.json"


def test_test_passes_arguments_on(checkout: Path) -> None:
    made = run(checkout, "make", "PYTHON=./python", "test", "ARGS=-k layout")
    assert made.returncode == 0, made.stderr
    assert calls(checkout)[0].endswith("-e .[dev]")
    assert calls(checkout)[-1] == "pytest -k layout"


def test_an_old_python_is_named(checkout: Path) -> None:
    script(checkout / "python", 'case "$1" in -V) echo Python 3.9.1;; *) exit 1;; esac')
    made = run(checkout, "make", "PYTHON=./python", "demo")
    assert made.returncode == 2
    assert (
        'foedus needs Python 3.11 or newer; "./python" is Python 3.9.1: name a newer one with PYTHON=…' in made.stderr
    )


def test_a_missing_python_is_named(checkout: Path) -> None:
    made = run(checkout, "make", "PYTHON=no-such-python", "demo")
    assert made.returncode == 2
    assert 'foedus needs Python 3.11 or newer and found no "no-such-python"' in made.stderr


@pytest.mark.parametrize("status", [0, 1, 2, 5])
def test_continuous_integration_ends_with_the_status_of_pytest(tmp_path: Path, status: int) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    script(tmp_path / "bin" / "make", "exit 0")
    script(tmp_path / ".venv" / "bin" / "pytest", f'echo "pytest ran with $*"; exit {status}')
    ran = run(tmp_path, ".ci/run", "-k", "x", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert ran.returncode == status
    assert "pytest ran with -k x" in ran.stdout
    assert ("== all passed" in ran.stdout) == (status == 0)


def test_continuous_integration_stops_at_the_first_failure(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    script(tmp_path / "bin" / "make", "exit 2")
    ran = run(tmp_path, ".ci/run", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert ran.returncode == 2
    assert "failed with 2: make check" in ran.stderr
