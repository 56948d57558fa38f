"""The quickstart page, executed word for word."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from foedus.simulations.local import free_port

PAGE = (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text()
COMMANDS_PER_SITE = 2


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str], list[subprocess.Popen[bytes]]]]:
    """A folder, an environment with ``foedus`` on its path, and the processes to end."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    running: list[subprocess.Popen[bytes]] = []
    yield tmp_path, environment, running
    for process in reversed(running):
        process.send_signal(signal.SIGTERM)
    for process in running:
        assert process.wait(60) == 0, "an 'up' that is asked to end exits with 0"


def test_the_page_counts_its_commands_rightly() -> None:
    assert len(commands()) + 1 == 11
    assert PAGE.startswith("# From nothing")
    assert "Eleven commands" in PAGE
    for site in ("st-anna", "st-bernard"):
        assert sum(line.startswith("foedus site") and site in line for line in commands()) == COMMANDS_PER_SITE


def test_the_page_works(shell: tuple[Path, dict[str, str], list[subprocess.Popen[bytes]]]) -> None:
    folder, environment, running = shell
    (folder / "training.py").write_text(blocks("python")[0])
    (folder / "plan.toml").write_text(blocks("toml")[0])
    ports = {"8443": free_port(), "8444": free_port()}
    last = ""
    for line in commands():
        line = line.replace("8443", str(ports["8443"]))
        if shlex.split(line)[2] == "up":
            if "server" in line:
                settings = folder / "foedus-server" / "server.toml"
                settings.write_text(settings.read_text() + f'web = "127.0.0.1:{ports["8444"]}"\n')
            log = (folder / f"{len(running)}.log").open("wb")
            running.append(subprocess.Popen(shlex.split(line), cwd=folder, env=environment, stdout=log, stderr=log))
            log.close()
            if "server" in line:
                _wait_until_up(folder, environment)
            continue
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        last = done.stdout
    assert "round evaluated  round 5" in last
    assert "run finished" in last
    losses = [float(loss) for loss in re.findall(r"round evaluated.*loss=(\S+)", last)]
    assert len(losses) == 5
    assert losses[-1] < 0.5 * losses[0]
    # The researcher on another machine.
    for line in blocks("console")[0].splitlines():
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "finished" in done.stdout


def _wait_until_up(folder: Path, environment: dict[str, str]) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(["foedus", "server", "status"], cwd=folder, env=environment, capture_output=True).returncode:
        assert time.monotonic() < deadline, (folder / "0.log").read_text()
