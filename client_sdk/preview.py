"""What would leave the site, written down instead of sent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..configuration import load
from ..errors import ConfigError
from ..files import private_folder, replacing, write
from ..layout import Role
from ..modelfile import ModelFile
from ..plan import LocalTraining, Plan
from .config import SiteConfig
from .home import SiteHome
from .loading import load_tasks
from .outbound import update_blocks
from .task import TrainingJob, job_seed


def preview(home: Path, task: str, folder: Path, *, model: Path | None, plan: Path | None) -> dict[str, Any]:
    """Train one round of a task and write ``update.bin`` and ``update.json`` to ``folder``.

    The bytes are made by the very function that makes a real update. Returns what ``update.json``
    holds: every field that would be sent, and the tensors in the bytes.

    Raises:
        ConfigError: no such task at this site, or the model or plan cannot be read.
    """
    place = SiteHome(home)
    tasks = load_tasks(load(SiteConfig, place.config).tasks, home)
    if task not in tasks:
        raise ConfigError(f"there is no task {task!r} at this site", hint=f"there are: {', '.join(tasks) or 'none'}")
    installed = tasks[task].task
    received = ModelFile.open(model).read() if model else installed.initial(0)
    received.layout.require(installed.layout(), f"task {task!r}")
    training = load(Plan, plan).training if plan else LocalTraining(steps=1)
    job = TrainingJob(run="preview", round=1, site="preview", training=training, seed=job_seed(0, 1, "preview"))
    result = installed.train(received, job)
    private_folder(folder)
    digest, size = hashlib.sha256(), 0
    with replacing(folder / "update.bin", mode=0o600) as file:
        for block in update_blocks(received, result.model):
            digest.update(block)
            size += len(block)
            file.write(block)
    sent = {
        "bytes": size,
        "sha256": digest.hexdigest(),
        "num_examples": result.num_examples,
        "num_steps": result.num_steps,
        "metrics": dict(result.metrics),
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "role": t.role.value}
            for t in received.layout.tensors
            if t.role is not Role.FROZEN
        ],
    }
    write(folder / "update.json", json.dumps(sent, indent=2) + "\n")
    return sent
