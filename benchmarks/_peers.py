"""The same rules elsewhere: flwr, by both of its interfaces, and byzfl, as far as they are installed.

Each gets the updates in the form it keeps them in, and pays itself for what it makes of that.

Shape suffixes: N updates, D parameters.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from _timing import Work

# Beyond this many operations a peer takes minutes for one call, and is left out.
MOST = 6e9


def peers(updates_ND: npt.NDArray[np.float32], f: int, m: int) -> dict[str, dict[str, Work]]:
    """Works of peers by the name of the rule and of the peer; ``m`` is how many Multi-Krum averages."""
    found: dict[str, dict[str, Work]] = {}
    for peer, of in (
        ("flwr", _flower_legacy(updates_ND, f, m)),
        ("flwr messages", _flower_messages(updates_ND, f, m)),
        ("byzfl", _byzfl(updates_ND, f)),
    ):
        for name, work in of.items():
            found.setdefault(name, {})[peer] = work
    return found


def _flower_legacy(updates_ND: npt.NDArray[np.float32], f: int, m: int) -> dict[str, Work]:
    try:
        from flwr.server.strategy import aggregate as flower
    except ImportError:
        return {}
    n, d = updates_ND.shape

    def results() -> list[Any]:  # made anew: its Bulyan empties the list
        return [([row_D], 100 + index) for index, row_D in enumerate(updates_ND)]

    works: dict[str, Work] = {
        "mean": lambda: flower.aggregate(results()),
        "median": lambda: flower.aggregate_median(results()),
        "trimmed-mean": lambda: flower.aggregate_trimmed_avg(results(), f / n + 1e-9),
        "krum": lambda: flower.aggregate_krum(results(), f, 0),
        "multi-krum": lambda: flower.aggregate_krum(results(), f, m),
        "bulyan": lambda: flower.aggregate_bulyan(results(), f, flower.aggregate_krum, to_keep=0),
    }
    if n * n * d > MOST:
        del works["krum"], works["multi-krum"]
    if n * n * d * (n - 2 * f) > MOST:
        del works["bulyan"]
    return works


def _flower_messages(updates_ND: npt.NDArray[np.float32], f: int, m: int) -> dict[str, Work]:
    try:
        from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
        from flwr.serverapp.strategy.bulyan import aggregate_n_closest_weights
        from flwr.serverapp.strategy.multikrum import select_multikrum
        from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
    except ImportError:
        return {}
    n = len(updates_ND)
    records = [
        RecordDict({"a": ArrayRecord({"w": Array(row_D)}), "m": MetricRecord({"num-examples": 100 + index})})
        for index, row_D in enumerate(updates_ND)
    ]

    def bulyan() -> object:
        chosen = [[record["a"]["w"].numpy()] for record in select_multikrum(records, f, n - 2 * f)]
        middle_D = np.median(np.stack([row_D for (row_D,) in chosen]), axis=0)
        return aggregate_n_closest_weights([middle_D], chosen, n - 4 * f)

    return {
        "mean": lambda: aggregate_arrayrecords(records, "num-examples"),
        "krum": lambda: aggregate_arrayrecords(select_multikrum(records, f, 1), "num-examples"),
        "multi-krum": lambda: aggregate_arrayrecords(select_multikrum(records, f, m), "num-examples"),
        "bulyan": bulyan,
    }


def _byzfl(updates_ND: npt.NDArray[np.float32], f: int) -> dict[str, Work]:
    if importlib.util.find_spec("byzfl") is None or importlib.util.find_spec("torch") is None:
        return {}
    import torch

    rules, before = _byzfl_modules()
    rows_ND, (n, d) = torch.from_numpy(updates_ND), updates_ND.shape
    made = {
        "mean": rules.Average(),
        "median": rules.Median(),
        "trimmed-mean": rules.TrMean(f),
        "meamed": rules.Meamed(f),
        "krum": rules.Krum(f),
        "multi-krum": rules.MultiKrum(f),
        "geometric-median": rules.GeometricMedian(),
        "centered-clipping": rules.CenteredClipping(L=10, tau=1.0),
        "mda": rules.MDA(f),
    }
    if math.comb(n, f) > 10_000:
        del made["mda"]
    works: dict[str, Work] = {name: lambda it=it: it(rows_ND) for name, it in made.items()}
    if n * (n - f) * d < MOST / 4:
        mixing, krum = before.NNM(f), rules.MultiKrum(f)
        works["nnm + multi-krum"] = lambda: krum(mixing(rows_ND))
    return works


def _byzfl_modules() -> tuple[ModuleType, ModuleType]:
    """Its rules without the package around them, which wants torchvision for its own experiments."""
    spec = importlib.util.find_spec("byzfl")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    for name, below in (("byzfl", ""), ("byzfl.aggregators", "/aggregators"), ("byzfl.utils", "/utils")):
        package = ModuleType(name)
        package.__path__ = [f"{spec.submodule_search_locations[0]}{below}"]
        sys.modules.setdefault(name, package)
    return importlib.import_module("byzfl.aggregators.aggregators"), importlib.import_module(
        "byzfl.aggregators.preaggregators"
    )
