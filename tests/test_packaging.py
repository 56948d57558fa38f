"""What is shipped: every folder, every data file, one version, and imports that stay light."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import foedus
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
NOT_SHIPPED = {"tests", "benchmarks", "docs", "deploy", "typings", "build", "dist"}


def shipped(pattern: str) -> set[str]:
    """Files of the checkout that belong into the wheel, as paths below the package."""
    found = set()
    for top in ROOT.iterdir():
        if top.name not in NOT_SHIPPED and not top.name.startswith("."):
            found |= {path for path in (top.rglob(pattern) if top.is_dir() else [top]) if path.match(pattern)}
    return {path.relative_to(ROOT).as_posix() for path in found}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def build(folder: Path, **environment: str) -> Path:
    """The wheel, built from a copy so that nothing is left in the checkout."""
    source = folder / "source"
    ignore = shutil.ignore_patterns(
        ".*", "*.egg-info", "__pycache__", "*.so", "typings", "tests", "benchmarks", "build", "dist"
    )
    shutil.copytree(ROOT, source, ignore=ignore)
    out = folder / "dist"
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    built = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def run_installed(wheel: Path, folder: Path, script: str) -> str:
    """What a script prints that sees only the unpacked wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {script}"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_package_is_listed(project: dict[str, Any]) -> None:
    folders = {path.removesuffix("/__init__.py").removesuffix("__init__.py") for path in shipped("__init__.py")}
    names = {".".join(["foedus", *folder.split("/")]) if folder else "foedus" for folder in folders}
    assert set(project["tool"]["setuptools"]["packages"]) == names


def test_one_version_everywhere(project: dict[str, Any], wheel: Path) -> None:
    assert project["project"]["version"] == foedus.__version__
    assert wheel.name.startswith(f"foedus-{foedus.__version__}-")


def test_one_wheel_for_every_python_of_a_platform(wheel: Path) -> None:
    assert re.fullmatch(r"cp311-abi3-\w+", wheel.stem.split("-", 2)[2]), wheel.name


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_wheel_holds_the_compiled_kernel(wheel: Path, tmp_path: Path) -> None:
    script = "from foedus.aggregators.kernel_choice import best_kernel; print(best_kernel().name)"
    assert run_installed(wheel, tmp_path, script).startswith("compiled (")


def test_without_a_compiler_numpy_does_the_work(tmp_path: Path) -> None:
    wheel = build(tmp_path / "build", CC="/nonexistent/cc")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    script = "from foedus.aggregators.kernel_choice import best_kernel; print(best_kernel().name)"
    assert run_installed(wheel, tmp_path / "installed", script) == "numpy\n"


def test_the_wheel_holds_all_code_and_no_more(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {name.removeprefix("foedus/") for name in names if name.endswith(".py")}
    assert code == shipped("*.py")
    assert all(name.startswith(("foedus/", "foedus-")) for name in names)


def test_the_wheel_holds_all_data(wheel: Path) -> None:
    names = {name.removeprefix("foedus/") for name in zipfile.ZipFile(wheel).namelist()}
    wanted = {"py.typed", "protos/baseline.binpb"}
    for folder, patterns in {"examples": ["*.csv", "*.md", "*.toml"], "protos": ["*.proto", "*.pyi"]}.items():
        wanted |= {path for pattern in patterns for path in shipped(pattern) if path.startswith(f"{folder}/")}
    wanted |= {path for path in shipped("*.html") if path.startswith("server/")}
    assert wanted - names == set()
    assert {"examples/heart/heart_disease.csv", "protos/v1/session.proto"} <= wanted
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    script = (
        "import importlib.resources as r, foedus, foedus.protos.compatibility as c;"
        "print(foedus.__file__);"
        "assert (r.files('foedus.examples.heart') / 'heart_disease.csv').is_file();"
        "assert c.main([]) == 0"
    )
    assert run_installed(wheel, tmp_path, script).startswith(str(tmp_path))


def test_the_command_is_where_pyproject_says(project: dict[str, Any], wheel: Path) -> None:
    entry_points = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/entry_points.txt"))
    assert "foedus = foedus.cli:main" in zipfile.ZipFile(wheel).read(entry_points).decode()
    assert project["project"]["scripts"] == {"foedus": "foedus.cli:main"}


def loaded_after(script: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after ``script``."""
    probe = f"{script}\nimport sys; print('LOADED', *{{name.partition('.')[0] for name in sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.rpartition("LOADED")[2].split())


def test_importing_foedus_is_light() -> None:
    loaded = loaded_after("import foedus")
    assert "foedus" in loaded
    assert loaded & {"torch", "grpc", "numpy", "pydantic", "sklearn", "click", "cryptography"} == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["server", "--help"], ["site", "--help"]])
def test_help_is_light(arguments: list[str]) -> None:
    script = f"""
import sys
from foedus.cli import main
sys.argv = ["foedus", *{arguments!r}]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
    loaded = loaded_after(script)
    assert loaded & {"torch", "grpc", "pydantic", "numpy", "sklearn", "cryptography"} == set()


def test_tests_reach_for_nothing_private() -> None:
    private = []
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            private += [
                f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
                for name in names
                if name.startswith("foedus")
                and any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
            ]
    assert private == []


def test_every_direct_dependency_is_pinned_within_its_floor(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    for constraints, names in {
        "constraints.txt": ["server", "torch", "sklearn", "dev"],
        "benchmarks/constraints.txt": ["server", "torch", "sklearn", "bench"],
    }.items():
        lines = [line for line in (ROOT / constraints).read_text().splitlines() if line and not line.startswith("#")]
        pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, lines)}
        for pin in pins.values():
            assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), f"{constraints}: {pin} is not one public version"
        for wanted in map(Requirement, project["project"]["dependencies"] + [w for n in names for w in extras[n]]):
            if wanted.name != "foedus":
                assert canonicalize_name(wanted.name) in pins, f"{constraints} lacks {wanted.name}"
                (version,) = pins[canonicalize_name(wanted.name)].specifier
                assert wanted.specifier.contains(version.version), f"{constraints}: {wanted} excludes {version}"
