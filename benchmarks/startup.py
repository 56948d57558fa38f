"""How long ``foedus --help`` takes, against a bare interpreter and one that imports click only.

python benchmarks/startup.py --json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "foedus --help": ["-m", "foedus", "--help"],
    "foedus run --help": ["-m", "foedus", "run", "--help"],
    "import click": ["-c", "import click"],
    "python": ["-c", "pass"],
}


def seconds(arguments: list[str]) -> float:
    """One start, from the outside."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    """Measure in turn and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.runs):
        for name, arguments in COMMANDS.items():
            taken[name].append(seconds(arguments))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    rows = [
        {
            "name": name,
            "seconds": round(medians[name], 4),
            "limit_seconds": round(medians["import click"], 4),
            "ratio_to_limit": round(medians["import click"] / medians[name], 3),
            "peer": None,
            "ratio_to_peer": None,
            "peak_mb": None,
        }
        for name in COMMANDS
    ]
    if not options.json:
        for row in rows:
            print(f"{row['name']}: {row['seconds'] * 1000:.0f} ms")
        return
    machine = {"cpus": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()}
    print(json.dumps({"benchmark": "startup", "params": {"runs": options.runs}, "machine": machine, "rows": rows}))


if __name__ == "__main__":
    main()
