"""From the words in ``site.toml`` to a task, and to the digest of the code behind it."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ..errors import ConfigError, FoedusError
from .config import TaskEntry
from .task import Task

_METHODS = ("layout", "initial", "train", "evaluate")


@dataclass(frozen=True, slots=True)
class InstalledTask:
    """A task that is ready at this site, and the SHA-256 of its code."""

    task: Task
    code_sha256: str


def load_tasks(entries: Mapping[str, TaskEntry], base_folder: Path) -> dict[str, InstalledTask]:
    """The tasks of ``site.toml`` by name.

    Raises:
        ConfigError: as ``load_task``, or a task calls itself by another name than the file does.
    """
    found: dict[str, InstalledTask] = {}
    for name, entry in entries.items():
        task = load_task(entry.entry, entry.parameters, base_folder)
        if task.name != name:
            raise ConfigError(
                f"the task {entry.entry} calls itself {task.name!r}, but is configured as {name!r}",
                hint=f"rename the table to [tasks.{task.name}]",
            )
        found[name] = InstalledTask(task, code_sha256(entry.entry, base_folder))
    return found


def load_task(entry: str, parameters: Mapping[str, Any], base_folder: Path) -> Task:
    """Import what ``entry`` names; a class or function is called with ``parameters``.

    Raises:
        ConfigError: the file, module or attribute is missing, fails, or is no task.
    """
    found = load_attribute(entry, base_folder)
    if _is_task(found):
        if parameters:
            raise ConfigError(f"{entry} is a task already, so it takes no parameters", hint="remove parameters")
        return cast("Task", found)
    if not callable(found):
        raise ConfigError(f"{entry} is a {type(found).__name__}, expected a task or a function that returns one")
    task = _guarded(f"{entry} could not be made", lambda: found(**parameters))
    if not _is_task(task):
        raise ConfigError(
            f"{entry} returned a {type(task).__name__}, expected a task",
            hint=f"a task has a name and the methods {', '.join(_METHODS)}",
        )
    return cast("Task", task)


def load_attribute(entry: str, base_folder: Path) -> Any:
    """Import what ``entry`` names.

    Raises:
        ConfigError: the file, module or attribute is missing or fails.
    """
    source, _, attribute = entry.partition(":")
    found: Any = _module(source, base_folder)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{source} has no attribute {attribute!r}", hint=_nearby(found, part))
        found = getattr(found, part)
    return found


def code_sha256(entry: str, base_folder: Path) -> str:
    """The hex SHA-256 of the task's source.

    Of a single file, its content. Of a package, or of a module in one, every ``.py`` file of that
    package and below, in the order of their names, each with its name and length.

    Raises:
        ConfigError: the source cannot be found or read.
    """
    path = _source_path(entry.partition(":")[0], base_folder)
    try:
        if path.is_file():
            return hashlib.sha256(path.read_bytes()).hexdigest()
        digest = hashlib.sha256()
        for name in sorted(file.relative_to(path).as_posix() for file in path.rglob("*.py")):
            content = (path / name).read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from None


def _module(source: str, base_folder: Path) -> ModuleType:
    path = _source_path(source, base_folder)
    if not source.endswith(".py"):
        return cast("ModuleType", _guarded(f"{source} could not be imported", lambda: importlib.import_module(source)))
    path = _source_path(source, base_folder)
    # Known to the interpreter under a name of its own, so that its classes can be pickled.
    name = f"foedus_task_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[name] = module
    try:
        _guarded(f"{path} could not be imported", lambda: loader.exec_module(module))
    except FoedusError:
        del sys.modules[name]
        raise
    return module


def _source_path(source: str, base_folder: Path) -> Path:
    """The file of a single module; the folder of a package or of the package a module is in."""
    if source.endswith(".py"):
        path = (base_folder / source).resolve()
        if not path.is_file():
            raise ConfigError(f"there is no file {path}", hint="a path is relative to the site's home")
        return path
    _find_here(base_folder)
    spec = _guarded(f"{source} could not be found", lambda: importlib.util.find_spec(source))
    if spec is None or not spec.origin:
        raise ConfigError(
            f"there is no module {source!r}", hint="install its package here, or write path/to/file.py:attribute"
        )
    path = Path(spec.origin)
    return path.parent if path.name == "__init__.py" or "." in source else path


def _find_here(base_folder: Path) -> None:
    """Let packages in the site's home be imported; last, so that they shadow nothing."""
    folder = str(base_folder.resolve())
    if folder not in sys.path:
        sys.path.append(folder)


def _guarded(failure: str, run: Any) -> Any:
    """Run the site's own code; whatever it raises becomes a ConfigError with the cause attached."""
    try:
        return run()
    except FoedusError:
        raise
    except Exception as error:
        raise ConfigError(f"{failure}: {type(error).__name__}: {error}") from error


def _is_task(value: object) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(getattr(value, "name", None), str) and all(
        callable(getattr(value, method, None)) for method in _METHODS
    )


def _nearby(module: object, wanted: str) -> str:
    near = difflib.get_close_matches(wanted, [name for name in dir(module) if not name.startswith("_")], 1)
    return f"did you mean {near[0]}?" if near else ""
