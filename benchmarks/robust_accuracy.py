"""How well a model learns while some of its sites lie, by rule and attack.

    python benchmarks/robust_accuracy.py --data FOLDER [--tables alike dirichlet bucketing] [--page FILE] [--json]

FOLDER holds the four idx files of MNIST or Fashion-MNIST; without it a short run on the small
digits that scikit-learn ships shows that everything works. ``--page`` puts the tables where FILE
has marks for them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from foedus.aggregators import rule
from foedus.aggregators.aggregator import Aggregator
from foedus.errors import TooFewUpdates

sys.path.insert(0, str(Path(__file__).parent))
from _apart import pool
from _images import Images, Indices, alike, by_dirichlet, by_label, digits, idx_images
from _page import fill, table
from _training import Lie, Training, final_accuracy

Parameters = dict[str, Any]

# About as long as what a site sends before it has learnt anything.
CLIP = 10.0

# Each takes f as well, but for the mean.
RULES: dict[str, Parameters] = {
    "mean": {},
    "krum": {},
    "multi-krum": {},
    "bulyan": {},
    "median": {},
    "trimmed-mean": {},
    "meamed": {},
    "geometric-median": {},
    "centered-clipping": {"clip": CLIP},
    "mda": {},
    "dnc": {},
    "fltrust": {},
    "foolsgold": {},
    "nnm + krum": {},
    "nnm + trimmed-mean": {},
    "nnm + geometric-median": {},
    "bucketing + median": {},
    "bucketing + geometric-median": {},
    "bucketing + centered-clipping": {"clip": CLIP},
}

ATTACKS = {
    "none": Lie("none", {}),
    "label flip": Lie("label-flip", {}),
    "sign flip": Lie("sign-flip", {}),
    "IPM 0.1": Lie("ipm", {"epsilon": 0.1}),
    "IPM 10": Lie("ipm", {"epsilon": 10.0}),
    "ALIE 1.5": Lie("alie", {"z": 1.5}),
    "mimic": Lie("mimic", {}),
    "Gaussian": Lie("gaussian", {}),
    "min-max": Lie("min-max", {}),
    "min-sum": Lie("min-sum", {}),
}

# The rules of Karimireddy, He and Jaggi (2022) as their code sets them, their attacks, and the
# accuracies in percent that follow from the logs they released, momentum 0.9, three seeds.
PUBLISHED_RULES: dict[str, Parameters] = {
    f"{pre}{name}": parameters
    for name, parameters in {
        "krum": {},
        "median": {},
        "geometric-median": {"iterations": 8},
        "centered-clipping": {"clip": 100.0, "iterations": 3},
    }.items()
    for pre in ("", "bucketing + ")
}
PUBLISHED_ATTACKS = {name: ATTACKS[name] for name in ("label flip", "sign flip", "mimic", "IPM 0.1")} | {
    "ALIE": Lie("alie", {})
}
PUBLISHED: dict[str, dict[str, float]] = {
    rule_name: dict(zip(PUBLISHED_ATTACKS, figures, strict=True))
    for rule_name, figures in {
        "krum": (1.0, 10.0, 29.0, 10.0, 11.4),
        "bucketing + krum": (43.3, 25.5, 64.8, 46.8, 10.1),
        "median": (50.6, 42.9, 57.2, 36.2, 9.9),
        "bucketing + median": (70.6, 63.8, 76.5, 59.3, 46.3),
        "geometric-median": (95.8, 82.8, 85.9, 13.5, 11.4),
        "bucketing + geometric-median": (97.4, 96.8, 97.1, 95.9, 91.7),
        "centered-clipping": (97.6, 97.6, 97.8, 97.6, 98.0),
        "bucketing + centered-clipping": (97.7, 97.7, 97.8, 97.7, 98.0),
    }.items()
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rules against attacks.

    Attributes:
        num_sites: N, the attackers among them; what they lie with is the attack's.
        split: how the images are shared: "alike", "dirichlet" or "by-label".
        seeds: a run for each; the accuracy is their mean.
        published: by rule and attack, what others measured, in percent.
    """

    num_sites: int
    num_attackers: int
    split: str
    rules: Mapping[str, Parameters]
    attacks: Mapping[str, Lie]
    training: Training
    seeds: int
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


OURS = Training(steps=300, batch=32, learning_rate=0.02, momentum=0.9, lying_momentum=True, seed=0)
THEIRS = replace(OURS, steps=600, learning_rate=0.01, lying_momentum=False)
TABLES = {
    "alike": Table(20, 4, "alike", RULES, ATTACKS, OURS, seeds=1),
    "dirichlet": Table(20, 4, "dirichlet", RULES, ATTACKS, OURS, seeds=1),
    "bucketing": Table(25, 5, "by-label", PUBLISHED_RULES, PUBLISHED_ATTACKS, THEIRS, 3, PUBLISHED),
}
ALPHA = 0.1


@dataclass(frozen=True, slots=True)
class Run:
    """One rule, one attack, one seed."""

    table: str
    rule: str
    attack: str
    seed: int


def main() -> None:
    """Train every cell of the tables and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with four idx files")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--rules", nargs="+", help="these rows alone")
    parser.add_argument("--attacks", nargs="+", help="these columns alone")
    parser.add_argument("--steps", type=int, help="how long each run trains; without --data 20")
    parser.add_argument("--seeds", type=int, help="runs of each cell; without --data 1")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--page", type=Path, help="a Markdown file with marks for the tables")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    options = parser.parse_args()
    if not options.data:
        options.steps, options.seeds = options.steps or 20, options.seeds or 1
    images = _images(options.data)
    tables = {name: _chosen(TABLES[name], options) for name in options.tables}
    results = {name: [] for name in tables}
    for name, row in measure(tables, options.data, options.processes):
        results[name].append(row)
        if not options.json:
            print(f"{name}: {row['name']}: {_percent(row['accuracy'])} % in {row['seconds']:.0f} s", flush=True)
    if options.page:
        for name, rows in results.items():
            fill(options.page, name, as_table(tables[name], rows))
    if options.json:
        rows = [{**row, "name": f"{name}: {row['name']}"} for name, of_table in results.items() for row in of_table]
        print(json.dumps(_result(images, tables, rows)))


def measure(tables: dict[str, Table], data: Path | None, processes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of the table and row of the result, one cell after the other."""
    runs = [
        Run(name, rule_name, attack, seed)
        for name, of in tables.items()
        for rule_name in of.rules
        for attack in of.attacks
        for seed in range(of.seeds)
    ]
    with pool(processes, _prepare, data, tables) as several:
        seen: list[tuple[float | None, float]] = []
        for run, outcome in zip(runs, several.map(_train, runs), strict=True):
            seen.append(outcome)
            if len(seen) < tables[run.table].seeds:
                continue
            accuracies = [accuracy for accuracy, _ in seen if accuracy is not None]
            yield (
                run.table,
                {
                    "name": f"{run.rule}, {run.attack}",
                    "seconds": sum(seconds for _, seconds in seen),
                    "limit_seconds": None,
                    "ratio_to_limit": None,
                    "peer": None,
                    "ratio_to_peer": None,
                    "peak_mb": None,
                    "accuracy": statistics.mean(accuracies) if accuracies else None,
                    "accuracies": accuracies,
                },
            )
            seen = []


_prepared: dict[str, Any] = {}


def _prepare(data: Path | None, tables: dict[str, Table]) -> None:
    _prepared.update(images=_images(data), tables=tables)


def _train(run: Run) -> tuple[float | None, float]:
    """The accuracy, None where the rule does not cover so few sites, and the CPU seconds it took."""
    of, images = _prepared["tables"][run.table], _prepared["images"]
    aggregator = made(run.rule, of.rules[run.rule], of.num_attackers)
    try:
        aggregator.require(of.num_sites)
    except TooFewUpdates:
        return None, 0.0
    began = time.process_time()
    sites = shared(images, of, run.seed)
    training = replace(of.training, seed=run.seed)
    accuracy = final_accuracy(images, sites, of.num_attackers, of.attacks[run.attack], aggregator, training)
    return accuracy, time.process_time() - began


def made(name: str, parameters: Parameters, f: int) -> Aggregator:
    """The rule a row is named after: "bucketing + krum" is Krum on buckets."""
    *pre, last = name.split(" + ")
    return rule(last, pre=pre, **({} if last == "mean" else {"f": f}), **parameters)


def shared(images: Images, of: Table, seed: int) -> list[Indices]:
    """Which images each site has, the attackers last."""
    labels_N, rng = images.train.labels_N, np.random.default_rng(seed)
    match of.split:
        case "alike":
            return alike(labels_N, of.num_sites, rng)
        case "dirichlet":
            return by_dirichlet(labels_N, of.num_sites, rng, ALPHA)
        case _:
            # As its authors have it: the honest ones cut up the classes, the attackers have some of everything.
            num_honest = of.num_sites - of.num_attackers
            attackers = alike(labels_N, num_honest, rng)[: of.num_attackers]
            return [*by_label(labels_N, num_honest), *attackers]


def as_table(of: Table, rows: list[dict[str, Any]]) -> str:
    """Markdown, accuracies in percent; behind them in brackets what was published."""
    figures = {row["name"]: _percent(row["accuracy"]) for row in rows}

    def cell(rule_name: str, attack: str) -> str:
        theirs = of.published.get(rule_name, {}).get(attack)
        return figures[f"{rule_name}, {attack}"] + ("" if theirs is None else f" ({theirs})")

    return table(["", *of.attacks], [[name, *(cell(name, attack) for attack in of.attacks)] for name in of.rules])


def _percent(accuracy: float | None) -> str:
    return "–" if accuracy is None else f"{100 * accuracy:.1f}"


def _images(data: Path | None) -> Images:
    return digits() if data is None else idx_images(data)


def _chosen(of: Table, options: argparse.Namespace) -> Table:
    def kept(named: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]:
        return {name: value for name, value in named.items() if names is None or name in names}

    return replace(
        of,
        rules=kept(of.rules, options.rules),
        attacks=kept(of.attacks, options.attacks),
        training=replace(of.training, steps=options.steps or of.training.steps),
        seeds=options.seeds or of.seeds,
    )


def _result(images: Images, tables: dict[str, Table], rows: list[dict[str, Any]]) -> dict[str, Any]:
    params = {
        name: {
            "sites": of.num_sites,
            "attackers": of.num_attackers,
            "split": of.split,
            "seeds": of.seeds,
            "steps": of.training.steps,
            "batch": of.training.batch,
            "learning_rate": of.training.learning_rate,
            "momentum": of.training.momentum,
        }
        for name, of in tables.items()
    }
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
    return {
        "benchmark": "robust_accuracy",
        "params": {"data": images.name, **params},
        "machine": machine,
        "rows": rows,
    }


if __name__ == "__main__":
    main()
