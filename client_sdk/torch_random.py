"""Seeded randomness that leaves the host application's own generators as they were."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_TURN = threading.RLock()


@contextmanager
def isolated_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch, numpy and ``random`` inside the block and put their states back afterwards.

    These generators belong to the whole process, so blocks of several sites in one process take
    turns. Another thread of the host that draws from them inside a block still makes the block's
    numbers irreproducible.
    """
    devices = [device] if device.type == "cuda" else []
    with _TURN:
        python_state, numpy_state = random.getstate(), np.random.get_state()
        try:
            with torch.random.fork_rng(devices=devices):
                _seed_everything(seed, device)
                yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def _seed_everything(seed: int, device: torch.device) -> None:
    """Seed torch (on the CPU and on ``device``), numpy and ``random``, and no other device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
