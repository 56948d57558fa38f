"""What would leave the site, written down instead of sent."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..clock import SystemClock
from ..configuration import load
from ..errors import ConfigError, SiteVeto, TaskFailed
from ..files import private_folder, replacing, write
from ..layout import Layout, Role
from ..modelfile import Model, ModelFile, write_model
from ..plan import LocalTraining, Plan
from ..privacy.secagg.protectable import require_protectable, require_protectable_model
from ..privacy.secagg.terms import weighs_examples
from ..protos.channel import SECURE_BYTES
from ..protos.messages import Evaluation, Heartbeat, Hello, Phase, Refusal, TaskOffer, UploadHeader, Work
from ..protos.wire import MAX_REASON_LENGTH
from .claims import checked_measurement, checked_result
from .config import SiteConfig
from .holds import words_hold
from .home import SiteHome
from .loading import InstalledTask, load_tasks
from .outbound import update_blocks
from .policy import Policy, check_round
from .rehearsal import Rehearsal, rehearse
from .spent import epsilon_of
from .sums import weight_of
from .task import LocalResult, Task, TrainingJob, job_seed

RUN = "preview"  # stands for the run's id, which only a server can give
REASON = f"what forbids or broke the work, with the text of the task's own error; {MAX_REASON_LENGTH} characters"

IN_THE_CLEAR = "what training has changed of each value, and the buffers and counters as they are: the server sees it"


def preview(home: Path, task: str, folder: Path, *, model: Path | None, plan: Path | None) -> dict[str, Any]:
    """Train one round of a task, evaluate, and write ``update.bin`` and ``update.json`` to ``folder``.

    The bytes are made by the very function that makes a real update, and under protection by a real secure sum
    with sites that are not there. Returns what ``update.json`` holds: every message of a round with every field,
    what the bytes hold, the tensors in them, and the ε of one round's sum if it has noise. The run and the reason of
    a refusal are placeholders. ``evaluation`` is None if the plan has none, ``secure`` empty without protection. What
    leaves beyond that is the certificate (the site's name and public key) and which models are asked for.

    Raises:
        ConfigError: no such task at this site, the model or plan cannot be read, or no server takes the plan.
        PolicyRefused: the site's policy forbids a round of the plan, in the words in which it would be refused.
        InvalidUpdate, TaskFailed: what the task returned could not be sent.
    """
    place = SiteHome(home)
    tasks = load_tasks(load(SiteConfig, place.config).tasks, home)
    if task not in tasks:
        raise ConfigError(f"there is no task {task!r} at this site", hint=f"there are: {', '.join(tasks) or 'none'}")
    installed = tasks[task].task
    received = ModelFile.open(model).read() if model else installed.initial(0)
    received.layout.require(installed.layout(), f"task {task!r}")
    wanted = load(Plan, plan) if plan else None
    training = wanted.training if wanted else LocalTraining(steps=1)
    job = TrainingJob(run=RUN, round=1, site="preview", training=training, seed=job_seed(0, 1, "preview"))
    policy = load(Policy, place.policy) if wanted else None
    if wanted and policy:
        _require_possible(wanted, policy, received.layout)
    result = checked_result(installed.train(received, job))
    rehearsal = _rehearsed(wanted, policy, received, result) if wanted and policy else None
    private_folder(folder)
    evaluates = wanted is None or wanted.evaluation.every > 0
    model_sha256 = ModelFile.open(model).digest() if model else _digest(received, folder)
    work = Work(RUN, 1, Phase.TRAIN)
    upload = _upload(folder / "update.bin", received, result, model_sha256, rehearsal)
    sent = {
        "protection": wanted.protection if wanted else "none",
        "hello": asdict(_hello(tasks)),
        "heartbeat": asdict(Heartbeat(work, result.num_steps)),
        "upload": asdict(upload) | {"masked": upload.masked.hex()},
        "holds": words_hold(rehearsal.session) if rehearsal else IN_THE_CLEAR,
        "epsilon": epsilon_of(rehearsal.session) if rehearsal else None,
        "secure": list(rehearsal.messages) if rehearsal else [],
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "role": t.role.value}
            for t in received.layout.tensors
            if t.role is not Role.FROZEN
        ],
        "evaluation": _evaluation(installed, received, model_sha256) if evaluates else None,
        "refusal": asdict(Refusal(work, TaskFailed.__name__, REASON)),
    }
    write(folder / "update.json", json.dumps(sent, indent=2) + "\n")
    return sent


def _hello(tasks: Mapping[str, InstalledTask]) -> Hello:
    offers = tuple(TaskOffer(name, found.code_sha256) for name, found in tasks.items())
    return Hello(__version__, offers, SystemClock().now())


def _require_possible(plan: Plan, policy: Policy, layout: Layout) -> None:
    """What the server or this site would say before anything is trained."""
    if refusal := check_round(policy, plan.cohort.sites_needed, plan.protection):
        raise SiteVeto(refusal.reason)
    if plan.protection != "none":
        require_protectable(plan)
        require_protectable_model(plan, layout, SECURE_BYTES)


def _rehearsed(plan: Plan, policy: Policy, received: Model, result: LocalResult) -> Rehearsal | None:
    if plan.protection == "none":
        return None
    floats = np.frombuffer(b"".join(update_blocks(received, result.model)), "<f4", received.layout.num_trainable)
    weight = weight_of(result.num_examples, plan.secure.examples_per_weight) if weighs_examples(plan) else None
    return rehearse(floats, weight, plan, policy.for_sums())


def _upload(
    path: Path, received: Model, result: LocalResult, model_sha256: str, rehearsal: Rehearsal | None
) -> UploadHeader:
    blocks = update_blocks(received, result.model) if rehearsal is None else [rehearsal.words.data.cast("B")]
    digest, num_bytes = hashlib.sha256(), 0
    with replacing(path, mode=0o600) as file:
        for block in blocks:
            digest.update(block)
            num_bytes += len(block)
            file.write(block)
    header = UploadHeader(
        run=RUN,
        round=1,
        model_sha256=model_sha256,
        layout_sha256=received.layout.digest,
        num_bytes=num_bytes,
        sha256=digest.hexdigest(),
        num_examples=result.num_examples,
        num_steps=result.num_steps,
        metrics=result.metrics,
    )
    if rehearsal is None:
        return header
    return replace(header, num_examples=0, num_steps=0, metrics={}, masked=rehearsal.masked)


def _evaluation(task: Task, model: Model, model_sha256: str) -> dict[str, Any]:
    measured = checked_measurement(task.evaluate(model))
    return asdict(Evaluation(Work(RUN, 1, Phase.EVALUATE), model_sha256, measured.num_examples, measured.metrics))


def _digest(model: Model, folder: Path) -> str:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        return write_model(Path(scratch) / "model", model).digest()
