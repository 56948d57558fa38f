"""Buffers and counters that stay at the site from round to round (a plan's ``buffers = "local"``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..files import replacing
from ..modelfile import Model


def with_local_buffers(model: Model, folder: Path, run: str) -> Model:
    """The model with this site's own buffers and counters, once it has trained in this run."""
    path = _path(folder, run)
    if not path.is_file():
        return model
    raw = path.read_bytes()
    split = model.buffers_B.nbytes
    if len(raw) != split + model.counters_C.nbytes:
        return model
    return replace(
        model,
        buffers_B=np.frombuffer(raw[:split], np.float32).copy(),
        counters_C=np.frombuffer(raw[split:], np.int64).copy(),
    )


def keep_local_buffers(model: Model, folder: Path, run: str) -> None:
    """Keep a trained model's buffers and counters for the run's next round."""
    with replacing(_path(folder, run)) as file:
        file.write(model.buffers_B.tobytes() + model.counters_C.tobytes())


def _path(folder: Path, run: str) -> Path:
    return folder / f"{run}.buffers"
