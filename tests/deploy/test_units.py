"""The systemd units: what they must say, and what systemd itself says of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = ["foedus-server", "foedus-site"]
analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")

HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "LockPersonality": "yes",
    "CapabilityBoundingSet": "",
    "SystemCallArchitectures": "native",
    "StateDirectory": "foedus",
    "StateDirectoryMode": "0700",
    "UMask": "0077",
    "User": "foedus",
    "Restart": "on-failure",
}


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Sections, keys, and every value given to a key: systemd lets keys repeat, configparser does not."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in (DEPLOY / f"{name}.service").read_text().splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            keys = sections.setdefault(header[1], {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            keys.setdefault(key, []).append(value)
    return sections


@pytest.mark.parametrize("name", UNITS)
def test_units_are_hardened(name: str) -> None:
    service = unit(name)["Service"]
    assert {key: service.get(key, [None])[-1] for key in HARDENED} == HARDENED
    assert service["SystemCallFilter"][0] == "@system-service"
    assert all(value.startswith("~") for value in service["SystemCallFilter"][1:])
    assert unit(name)["Install"]["WantedBy"] == ["multi-user.target"]


def test_the_server_reports_its_readiness_and_is_watched() -> None:
    service = unit("foedus-server")["Service"]
    assert service["Type"] == ["notify"]
    assert service["NotifyAccess"] == ["main"]
    assert int(service["WatchdogSec"][0]) >= 10
    assert "AF_UNIX" in service["RestrictAddressFamilies"][0], "the notification socket"


def test_stopping_waits_for_the_drain() -> None:
    from foedus.server.config import ServerConfig

    drain_seconds = ServerConfig.model_fields["drain_seconds"].default
    assert int(unit("foedus-server")["Service"]["TimeoutStopSec"][0]) > 2 * drain_seconds


def test_a_wrong_configuration_is_not_retried() -> None:
    from foedus.errors import EXIT_REFUSED, EXIT_USAGE

    assert unit("foedus-server")["Service"]["RestartPreventExitStatus"] == [f"{EXIT_USAGE}"]
    assert unit("foedus-site")["Service"]["RestartPreventExitStatus"] == [f"{EXIT_USAGE} {EXIT_REFUSED}"]


def with_a_command_that_exists(name: str, folder: Path) -> Path:
    path = folder / f"{name}.service"
    path.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", (DEPLOY / path.name).read_text(), flags=re.M))
    return path


@analyze
@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_no_fault(name: str, tmp_path: Path) -> None:
    path = with_a_command_that_exists(name, tmp_path)
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert path.name not in ran.stderr, ran.stderr
    assert ran.returncode == 0, ran.stderr


@analyze
@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_little_exposed(name: str, tmp_path: Path) -> None:
    path = with_a_command_that_exists(name, tmp_path)
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in ran.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit offline")
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", ran.stdout)
    assert exposure is not None, ran.stdout + ran.stderr
    assert float(exposure[1]) < 2.0
