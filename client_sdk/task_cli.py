"""``foedus task``: try a task without any federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..output import emit, json_option


@click.group()
def task() -> None:
    """Try a task: its initial model, its code's digest.

    \b
    foedus task init training.py:task initial.safetensors
    foedus task digest training.py:task
    """


@task.command()
@click.argument("entry")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("initial.safetensors"))
@click.option("--with", "parameters", multiple=True, help="KEY=VALUE for a task that is made by a function.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
def init(entry: str, path: Path, parameters: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Write the initial model of ENTRY, FILE.py:NAME or MODULE:NAME, for 'foedus run submit'."""
    from ..modelfile import write_model
    from .cli import pair
    from .loading import load_task

    found = load_task(entry, dict(map(pair, parameters)), Path.cwd())
    model = write_model(path, found.initial(seed))
    data: dict[str, Any] = {
        "path": str(path),
        "sha256": model.digest(),
        "layout_sha256": model.layout.digest,
        "update_bytes": model.layout.update_bytes,
        "tensors": [[t.name, list(t.shape), t.dtype, t.role.value] for t in model.layout.tensors],
    }
    layout = model.layout
    text = f"{path}: task {found.name}, {layout.num_trainable} trainable values, {layout.update_bytes} bytes an update"
    emit(data, text, as_json=as_json)


@task.command()
@click.argument("entry")
@json_option
def digest(entry: str, as_json: bool) -> None:
    """The SHA-256 of ENTRY's code, as a policy.toml names it."""
    from .loading import code_sha256

    found = code_sha256(entry, Path.cwd())
    emit({"code_sha256": found}, found, as_json=as_json)
