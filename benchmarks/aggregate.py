"""What each rule costs, against reading the updates once, and against the same rule elsewhere.

    python benchmarks/aggregate.py [--n 20] [--d 1000000] [--threads 1] [--kernel numpy] [--json]
    python benchmarks/aggregate.py --growth docs/results [--page docs/results/aggregation.md]
    python benchmarks/aggregate.py --out-of-core

CPU seconds, medians, with ours, the limit and the peers measured in turn in one process. The limit
sums the N x D floats once, by torch in float32 if it is installed. ``peak_mb`` is what one call
allocates at its worst, the updates not counted. ``--growth`` draws how the ratio grows with the
number of updates and with their length; ``--out-of-core`` compares 20 files of 100 MB with the
same rows in memory, and there ``peak_mb`` is the whole process's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _apart import apart
from _chart import chart
from _page import fill, table
from _rules import RULES, Size, both_passes, measure, update
from _timing import in_turn, machine
from foedus.aggregators.rows import FLOAT_BYTES, ArrayRows, MappedRows, Rows, Window

GROWTH_RULES = ["mean", "median", "trimmed-mean", "meamed", "multi-krum", "bulyan", "geometric-median", "mda"]
GROWTH_N = (10, 20, 50, 100)
GROWTH_D = (10**5, 10**6, 10**7, 10**8)
STORED_RULES = ("mean", "median", "multi-krum", "bulyan")
STORED_D = 25 * 10**6

# What a row has where nothing was measured.
NOT_MEASURED = dict.fromkeys(
    ("name", "seconds", "limit_seconds", "ratio_to_limit", "peer", "ratio_to_peer", "peak_mb"), None
)

Result = tuple[dict[str, Any], list[dict[str, Any]]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--d", type=lambda text: int(float(text)), help="1e6, for files 25e6")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kernel", choices=("best", "numpy"), default="best")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--growth", type=Path, metavar="FOLDER", help="draw the growth into two files there")
    parser.add_argument("--out-of-core", action="store_true")
    parser.add_argument("--page", type=Path, help="a Markdown file with marks for the tables")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    options = parser.parse_args()
    d = options.d or (STORED_D if options.out_of_core else 10**6)
    size = Size(options.n, d, options.threads, options.kernel == "numpy", options.repeats)
    if options.growth:
        params, rows = growth(size, options.growth)
    elif options.out_of_core:
        params, rows = out_of_core(size, [name for name in STORED_RULES if name in options.rules])
    else:
        params, rows = apart(measure, size, options.rules, not options.without_peers)
    if options.page:
        kind = "growth" if options.growth else "out-of-core" if options.out_of_core else f"threads {size.threads}"
        fill(options.page, f"{params['kernel'].split()[0]}, {kind}", as_table(rows))
    if options.json:
        print(json.dumps({"benchmark": "aggregate", "params": params, "machine": machine(), "rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in row.items()))


def growth(size: Size, folder: Path) -> Result:
    """Ratios to the limit for more updates and for longer ones; nulls where those do not fit into memory."""
    more, longer = [replace(size, n=n) for n in GROWTH_N], [replace(size, d=d) for d in GROWTH_D]
    seen = {at: apart(measure, at, GROWTH_RULES, False)[1] for at in {*more, *longer} if _fits(at)}
    for file, title, x_title, line in (
        ("growth-n.svg", f"{size.d:,} parameters", "updates", {at.n: at for at in more}),
        ("growth-d.svg", f"{size.n} updates", "parameters", {at.d: at for at in longer}),
    ):
        points = {
            name: [
                (x, row["ratio_to_limit"]) for x, at in line.items() for row in seen.get(at, []) if row["name"] == name
            ]
            for name in GROWTH_RULES
        }
        (folder / file).write_text(chart(f"CPU time, {title}", x_title, "times one read of the updates", points))
    rows = [
        {**row, "name": f"{row['name']}, n {at.n}, d {at.d}"}
        for at in dict.fromkeys([*more, *longer])
        for row in seen.get(at) or [{**NOT_MEASURED, "name": name} for name in GROWTH_RULES]
    ]
    return size.params(), rows


def out_of_core(size: Size, names: list[str]) -> Result:
    """CPU and memory of rules over files that are mapped a block at a time, against the same rows in memory."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="foedus-rows-") as name:
        paths = apart(_written, Path(name), size)
        for rule_name in names:
            seen = [
                (apart(_mapped, rule_name, paths, size), apart(_in_memory, rule_name, paths, size)) for _ in range(3)
            ]
            cpu, limit = (statistics.median(pair[which][0] for pair in seen) for which in (0, 1))
            peak_mb = max(mapped[1] for mapped, _ in seen)
            measured = {"seconds": cpu, "limit_seconds": limit, "ratio_to_limit": cpu / limit, "peak_mb": peak_mb}
            rows.append(NOT_MEASURED | {"name": rule_name} | measured)
    return {**size.params(), "limit": "the same rows in memory"}, rows


def as_table(rows: list[dict[str, Any]]) -> str:
    """Markdown, without the columns that no row has a figure for."""
    columns: dict[str, Callable[[dict[str, Any]], float | None]] = {
        "CPU time / limit": lambda row: row["ratio_to_limit"],
        "one thread / ours": lambda row: row.get("speedup"),
        **{
            f"{peer} / ours": lambda row, peer=peer: row.get("ratios_to_peers", {}).get(peer)
            for peer in ("flwr", "flwr messages", "byzfl")
        },
        "peak MB": lambda row: row["peak_mb"],
    }
    shown = {title: figure for title, figure in columns.items() if any(figure(row) is not None for row in rows)}
    return table(["", *shown], [[row["name"], *(_short(figure(row)) for figure in shown.values())] for row in rows])


def _short(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.2g}" if figure < 10 else f"{figure:.0f}"


def _fits(size: Size) -> bool:
    """Whether the updates take at most two thirds of the memory that is free."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (free_kb,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return FLOAT_BYTES * size.n * size.d < 2 / 3 * 1024 * free_kb


def _written(folder: Path, size: Size) -> list[Path]:
    paths = [folder / f"{index:03}" for index in range(size.n)]
    for index, path in enumerate(paths):
        update(index, size.d).tofile(path)
    return paths


def _mapped(name: str, paths: list[Path], size: Size) -> tuple[float, float]:
    return _over(MappedRows(tuple(map(Window, paths)), size.d), name, size)


def _in_memory(name: str, paths: list[Path], size: Size) -> tuple[float, float]:
    updates_ND = np.empty((size.n, size.d), np.float32)
    for path, row_D in zip(paths, updates_ND, strict=True):
        row_D[:] = np.fromfile(path, np.float32)
    return _over(ArrayRows(updates_ND), name, size)


def _over(rows: Rows, name: str, size: Size) -> tuple[float, float]:
    """CPU seconds of a rule, and the most memory this process has ever had, in megabytes."""
    cpu = in_turn({name: both_passes(name, rows, size)}, size.repeats)[name].cpu
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return cpu, int(status["VmHWM"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
