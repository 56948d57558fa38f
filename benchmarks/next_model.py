"""How fast the files of a round become the next model's file, hashed and durable, against reading them.

    python benchmarks/next_model.py [--updates 10] [--parameters 10000000] [--json]

CPU seconds, the median of the repeats, with ours and the limit measured in turn. The
limit reads the updates' bytes once and does nothing with them. ``peak_mb`` is what one call of
ours allocates at its worst.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from foedus.aggregators.decision import Combination, Coordinatewise, Middle, WeightedSum
from foedus.aggregators.engine import block_columns
from foedus.aggregators.rows import FileRows, Window
from foedus.layout import Layout, Role, TensorSpec
from foedus.modelfile import Model, write_model
from foedus.server.aggregation import step_model
from foedus.server.optimizers import FedAdam, FedAvg, ServerOptimizer
from foedus.server.update_file import UpdateFile

sys.path.insert(0, str(Path(__file__).parent))
from _timing import in_turn, machine, peak_mb


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="foedus-model-") as folder:
        rows = measure(options.updates, options.parameters, options.repeats, Path(folder))
    if options.json:
        params = {"updates": options.updates, "parameters": options.parameters, "repeats": options.repeats}
        print(json.dumps({"benchmark": "next_model", "params": params, "machine": machine(), "rows": rows}))
        return
    for row in rows:
        print(f"{row['name']}: {row['seconds']:.3f} s, {row['ratio_to_limit']:.1f} reads, {row['peak_mb']:.0f} MB")


def measure(n: int, size: int, repeats: int, folder: Path) -> list[dict[str, Any]]:
    """Every row of the result."""
    rng = np.random.default_rng(0)
    layout = Layout((TensorSpec("w", (size,), "float32", Role.TRAINABLE),))
    none = np.empty(0, np.float32)
    trained_D = rng.standard_normal(size, np.float32)
    model = write_model(folder / "model", Model(layout, trained_D, none, none.astype(np.int64), {}))
    updates = []
    for index in range(n):
        rng.standard_normal(size, np.float32).tofile(folder / str(index))
        updates.append(UpdateFile.open(folder / str(index), layout))
    stored, columns = FileRows(tuple(Window(update.path) for update in updates), size), block_columns(n)
    room_NC = np.empty((n, min(columns, size)), np.float32)

    def read_once() -> None:
        for start in range(0, size, columns):
            stored.read(start, min(start + columns, size), room_NC)

    def row(name: str, optimizer: ServerOptimizer, combination: Combination) -> dict[str, Any]:
        def step() -> None:
            step_model(model, updates, combination, optimizer, None, out=folder / "next", state_out=folder / "state")

        taken = in_turn({"ours": step, "limit": read_once}, repeats)
        return {
            "name": name,
            "seconds": taken["ours"].cpu,
            "limit_seconds": taken["limit"].cpu,
            "ratio_to_limit": taken["ours"].cpu / taken["limit"].cpu,
            "peer": None,
            "ratio_to_peer": None,
            "peak_mb": peak_mb(step),
        }

    mean = WeightedSum(np.full(n, 1 / n))
    median = Coordinatewise(Middle((n - 1) // 2), tuple(range(n)))
    return [
        row("mean, fedavg", FedAvg(), mean),
        row("mean, fedadam", FedAdam(), mean),
        row("median, fedavg", FedAvg(), median),
    ]


if __name__ == "__main__":
    main()
