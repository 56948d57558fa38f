"""Buffers and counters that stay at the site from round to round (a plan's ``buffers = "local"``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..files import replacing
from ..modelfile import Model
from ..protos.messages import Phase, Work


def with_local_buffers(model: Model, folder: Path, work: Work) -> Model:
    """The model with this site's own buffers and counters, once it has trained in this run.

    Training starts from those of an earlier round, so that a round trained again after a crash
    starts from what it started from before; an evaluation takes the newest.
    """
    limit = work.round if work.phase is Phase.TRAIN else work.round + 1
    kept = [number for number in _rounds(folder, work.run) if number < limit]
    if not kept:
        return model
    raw = _path(folder, work.run, max(kept)).read_bytes()
    split = model.buffers_B.nbytes
    if len(raw) != split + model.counters_C.nbytes:
        return model
    return replace(
        model,
        buffers_B=np.frombuffer(raw[:split], np.float32).copy(),
        counters_C=np.frombuffer(raw[split:], np.int64).copy(),
    )


def keep_local_buffers(model: Model, folder: Path, work: Work) -> None:
    """Keep a trained model's buffers and counters for the run's next rounds."""
    with replacing(_path(folder, work.run, work.round)) as file:
        file.write(model.buffers_B.tobytes() + model.counters_C.tobytes())
    # The round before is still what this one is trained from, should it be trained again.
    for number in _rounds(folder, work.run)[:-2]:
        _path(folder, work.run, number).unlink(missing_ok=True)


def _rounds(folder: Path, run: str) -> list[int]:
    return sorted(int(path.name.split(".")[-2]) for path in folder.glob(f"{run}.*.buffers"))


def _path(folder: Path, run: str, round: int) -> Path:
    return folder / f"{run}.{round}.buffers"
