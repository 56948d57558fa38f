"""How fast n updates become one, against one pass over the same bytes, plain numpy and Flower.

    python benchmarks/aggregation.py [--updates 10] [--parameters 10000000] [--json]

CPU seconds, the median of the repeats, with ours, the limit and the peer measured in turn. The
limit reads the updates' bytes once and does nothing with them. ``peak_mb`` is what one call of
ours allocates at its worst, the updates themselves not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from foedus.aggregators import rule
from foedus.aggregators.engine import block_columns, combine
from foedus.aggregators.rows import FileRows
from foedus.layout import Layout, Role, TensorSpec
from foedus.modelfile import Model, write_model
from foedus.server.aggregation import step_model
from foedus.server.optimizers import FedAdam, FedAvg, ServerOptimizer
from foedus.server.update_file import UpdateFile

Work = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options.updates, options.parameters, options.repeats, Path(folder))
    result = {"benchmark": "aggregation", "params": _params(options), "machine": _machine(), "rows": rows}
    if options.json:
        print(json.dumps(result))
        return
    for row in rows:
        print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in row.items()))


def measure(n: int, size: int, repeats: int, folder: Path) -> list[dict[str, Any]]:
    """Every row of the result."""
    rng = np.random.default_rng(0)
    updates_ND = rng.standard_normal((n, size), dtype=np.float32)
    counts = rng.integers(1, 1000, n).tolist()
    weights_N = np.array(counts) / sum(counts)
    layout = Layout((TensorSpec("w", (size,), "float32", Role.TRAINABLE),))
    none = np.empty(0, np.float32)
    model = write_model(folder / "model", Model(layout, updates_ND[0], none, none.astype(np.int64), {}))
    files = []
    for index, update_D in enumerate(updates_ND):
        update_D.tofile(folder / str(index))
        files.append(UpdateFile.open(folder / str(index), layout))
    stored = FileRows(tuple(file.path for file in files), 0, size)

    def in_memory() -> object:
        return rule("mean")(updates_ND, counts)

    def read_memory() -> object:
        return updates_ND.view(np.int32).max()

    def streamed() -> None:
        for _ in combine(stored, weights_N):
            pass

    def read_files() -> None:
        columns = min(block_columns(n), size)
        room_NC = np.empty((n, columns), np.float32)
        for start in range(0, size, columns):
            stored.read(start, min(start + columns, size), room_NC)

    def step(optimizer: ServerOptimizer) -> Work:
        return lambda: step_model(
            model, files, weights_N, optimizer, None, out=folder / "next", state_out=folder / "state"
        )

    def one(name: str, ours: Work, limit: Work, peer: str | None = None, theirs: Work | None = None) -> dict[str, Any]:
        return _row(name, ours, limit, peer, theirs, repeats)

    return [
        one("mean in memory", in_memory, read_memory, "flower", _flower(updates_ND, counts)),
        one(
            "mean in memory",
            in_memory,
            read_memory,
            "numpy average (float64)",
            lambda: np.average(updates_ND, axis=0, weights=weights_N),
        ),
        one(
            "mean in memory",
            in_memory,
            read_memory,
            "numpy tensordot (float64)",
            lambda: np.tensordot(weights_N, updates_ND, axes=1),
        ),
        one(
            "mean in memory",
            in_memory,
            read_memory,
            "numpy tensordot (float32, not reproducible)",
            lambda: np.tensordot(weights_N.astype(np.float32), updates_ND, axes=1),
        ),
        one("mean of files", streamed, read_files),
        one("next model with fedavg, hashed and durable", step(FedAvg()), read_files),
        one("next model with fedadam, hashed and durable", step(FedAdam()), read_files),
    ]


def _flower(updates_ND: np.ndarray, counts: list[int]) -> Work | None:
    try:
        from flwr.server.strategy.aggregate import aggregate
    except ImportError:
        return None
    results = [([update_D], count) for update_D, count in zip(updates_ND, counts, strict=True)]
    return lambda: aggregate(results)


def _row(name: str, ours: Work, limit: Work, peer: str | None, theirs: Work | None, repeats: int) -> dict[str, Any]:
    works = [ours, limit, *([theirs] if theirs else [])]
    times: list[list[float]] = [[] for _ in works]
    for _ in range(max(repeats, 3)):
        for work, seen in zip(works, times, strict=True):
            start = time.process_time()
            work()
            seen.append(time.process_time() - start)
    seconds, limit_seconds, *peer_seconds = (statistics.median(seen) for seen in times)
    return {
        "name": name,
        "seconds": seconds,
        "limit_seconds": limit_seconds,
        "ratio_to_limit": seconds / limit_seconds,
        "peer": peer,
        "ratio_to_peer": peer_seconds[0] / seconds if peer_seconds else None,
        "peak_mb": _peak_mb(ours),
    }


def _peak_mb(work: Work) -> float:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def _params(options: argparse.Namespace) -> dict[str, int]:
    return {
        "updates": options.updates,
        "parameters": options.parameters,
        "repeats": max(options.repeats, 3),
        "block_columns": block_columns(options.updates),
    }


def _machine() -> dict[str, Any]:
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


if __name__ == "__main__":
    main()
