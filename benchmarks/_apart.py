"""Work in processes of its own: with its own memory, and one thread for numpy and torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def pool(processes: int, prepare: Callable[..., None] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """New processes, where numpy and torch compute with one thread and the routines made for this processor."""
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        os.environ.pop(name, None)
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    return ProcessPoolExecutor(processes, get_context("spawn"), prepare, arguments)


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own."""
    with pool(1) as one:
        return one.submit(work, *arguments).result()
