"""The image and the Compose file, read as text: no container engine is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
STATE = "/var/lib/foedus"


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def given(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def test_only_known_instructions() -> None:
    known = {
        "ARG",
        "FROM",
        "ENV",
        "RUN",
        "WORKDIR",
        "COPY",
        "USER",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    assert {name for name, _ in instructions()} <= known


def test_it_runs_as_nobody_in_particular() -> None:
    names = [name for name, _ in instructions()]
    assert given("USER") == ["10001:10001"]
    last_stage = len(names) - 1 - names[::-1].index("FROM")
    assert names.index("USER") > last_stage
    assert "RUN" not in names[names.index("USER") :]
    assert f"install --directory --mode=0700 --owner=10001 --group=10001 {STATE}" in given("RUN")[-1]


def test_its_base_is_a_version_and_every_stage_uses_it() -> None:
    assert given("FROM") == ["${BASE} AS build", "${BASE}"]
    base = next(rest for rest in given("ARG") if rest.startswith("BASE="))
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+", base)


def test_it_installs_pinned_versions_and_carries_no_secret() -> None:
    installs = [rest for rest in given("RUN") if "pip install" in rest]
    assert installs
    assert all("-c constraints.txt" in rest for rest in installs)
    text = (DEPLOY / "Dockerfile").read_text().lower()
    assert not re.search(r"password|secret|token|\.key|\.pem|://\S+@", text)
    assert all(not rest.startswith(("http", "git")) for rest in given("COPY"))


def test_the_context_holds_what_the_wheel_needs_and_nothing_else() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert lines[0] == "*", "everything is left out but what is named"
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= allowed
    assert {"*.py", "py.typed", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"} <= allowed
    assert allowed & {"tests", ".git", ".venv", "typings"} == set()


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_one_server_and_three_sites_with_a_volume_each(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"server", "site-1", "site-2", "site-3"}
    assert {name: service["volumes"] for name, service in services.items()} == {
        name: [f"{name}:{STATE}"] for name in services
    }
    assert set(compose["volumes"]) == set(services)


def test_every_container_is_confined(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name
        assert "mem_limit" in service, name
        assert "privileged" not in service, name
        assert "environment" not in service, name
        assert not service["image"].endswith(":latest"), name
        assert ":" in service["image"], name


def test_nothing_is_open_to_the_outside(compose: dict[str, Any]) -> None:
    assert all("ports" not in service for service in compose["services"].values())


def test_sites_wait_until_the_server_is_ready(compose: dict[str, Any]) -> None:
    probe = compose["services"]["server"]["healthcheck"]["test"]
    assert probe[:3] == ["CMD", "python", "-c"]
    assert "http://127.0.0.1:8444/readyz" in probe[3]
    compile(probe[3], "healthcheck", "exec")
    for name in ("site-1", "site-2", "site-3"):
        assert compose["services"][name]["depends_on"] == {"server": {"condition": "service_healthy"}}


def test_the_probe_asks_where_the_server_answers() -> None:
    from foedus.server.config import ServerConfig

    assert ServerConfig.model_fields["web"].default == "127.0.0.1:8444"
    assert given("EXPOSE") == [ServerConfig.model_fields["listen"].default.rpartition(":")[2]]


def test_the_image_carries_the_version(compose: dict[str, Any]) -> None:
    import foedus

    assert {service["image"] for service in compose["services"].values()} == {f"foedus:{foedus.__version__}"}
    assert f"foedus:{foedus.__version__}" in (DEPLOY / "Dockerfile").read_text()
