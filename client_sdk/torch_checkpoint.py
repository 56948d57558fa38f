"""Resuming inside a round: the state of local training on disk, bound to exactly one job."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..files import private_folder, replacing, storing
from ..modelfile import Model
from .task import TrainingJob

DAMAGED = (OSError, EOFError, NotImplementedError, zipfile.BadZipFile)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far local training has come.

    Attributes:
        num_steps: optimizer steps done.
        num_seen: examples seen, counted as often as they were.
        loss_sum: sum of their losses.
        elapsed_seconds: time spent, in earlier processes too.
    """

    num_steps: int = 0
    num_seen: int = 0
    loss_sum: float = 0.0
    elapsed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One file per run and site; a file left by any other job is ignored and overwritten.

    Random state needs no place in it: every step is seeded from the job's seed and its number.
    """

    path: Path
    job: str

    @staticmethod
    def of(job: TrainingJob, received: Model, num_examples: int) -> Checkpoint | None:
        """Where the job's checkpoint belongs, or None if the job names no folder."""
        if job.checkpoints is None:
            return None
        owner = hashlib.sha256(f"{job.run}/{job.site}".encode()).hexdigest()[:16]
        identity = hashlib.sha256(
            f"{job.run}/{job.site}/{job.round}/{job.seed}/{num_examples}/{torch.__version__}/"
            f"{received.layout.digest}/{job.training.model_dump_json()}".encode()
        )
        for vector in (received.trainable_D, received.buffers_B, received.counters_C):
            identity.update(vector.tobytes())
        for name in sorted(received.frozen):
            identity.update(received.frozen[name])
        return Checkpoint(job.checkpoints / f"training-{owner}.pt", identity.hexdigest())

    def save(self, module: nn.Module, optimizer: Optimizer, progress: Progress) -> None:
        """Write the state of training, whole or not at all.

        Raises:
            StoreError: the file could not be written.
        """
        state = {
            "job": self.job,
            "progress": asdict(progress),
            "tensors": _moving(module),
            "optimizer": optimizer.state_dict(),
        }
        private_folder(self.path.parent)
        with replacing(self.path, mode=0o600) as file:
            torch.save(state, file)

    def restore(self, module: nn.Module, optimizer: Optimizer) -> Progress:
        """Put the job's saved state into module and optimizer; a fresh start if there is none.

        A damaged file is no error: training from the start gives the same bits.
        """
        state = self._read()
        if state is None:
            return Progress()
        with torch.no_grad():
            for name, tensor in _moving(module).items():
                tensor.copy_(state["tensors"][name])
        optimizer.load_state_dict(state["optimizer"])
        return Progress(**state["progress"])

    def discard(self) -> None:
        """Remove the file: the job is done."""
        with storing(f"removing {self.path}"):
            self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        try:
            with zipfile.ZipFile(self.path) as archive:
                if archive.testzip() is not None:  # checks every member's CRC-32, which torch.load does not
                    return None
        except DAMAGED:
            return None
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or state.get("job") != self.job:
            return None
        return state


def _moving(module: nn.Module) -> dict[str, Tensor]:
    """What training can change: trainable parameters and all buffers, non-persistent ones too."""
    parameters = {f"parameter/{name}": p.detach() for name, p in module.named_parameters() if p.requires_grad}
    return parameters | {f"buffer/{name}": buffer.detach() for name, buffer in module.named_buffers()}
