"""Every rule as something that can be timed.

Shape suffixes: N updates, D parameters.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from _peers import peers
from _timing import Work, in_turn, peak_mb
from foedus.aggregators import engine, rule
from foedus.aggregators.kernel_choice import best_kernel
from foedus.aggregators.kernel_numpy import NumpyKernel
from foedus.aggregators.rows import ArrayRows, Rows, chosen
from foedus.aggregators.workers import Threads

# Parameters beside f, which each takes but the mean.
RULES: dict[str, dict[str, Any]] = {
    "mean": {},
    "median": {},
    "trimmed-mean": {},
    "meamed": {},
    "krum": {},
    "multi-krum": {},
    "bulyan": {},
    "geometric-median": {},
    "centered-clipping": {"clip": 1.0, "iterations": 10},
    "mda": {},
    "dnc": {},
    "fltrust": {},
    "foolsgold": {},
    "nnm + multi-krum": {},
    "nnm + trimmed-mean": {},
    "bucketing + median": {},
}


@dataclass(frozen=True, slots=True)
class Size:
    """N updates of D parameters, and who computes.

    Attributes:
        numpy_only: the kernel in numpy, even where another one was compiled.
        repeats: how often everything is measured, at least 3 times.
    """

    n: int
    d: int
    threads: int = 1
    numpy_only: bool = False
    repeats: int = 5

    @property
    def f(self) -> int:
        """How many liars the rules are to withstand: a fifth, if Bulyan can."""
        return max(0, min(self.n // 5, (self.n - 3) // 4))

    def params(self) -> dict[str, Any]:
        """For the result."""
        kernel = (NumpyKernel() if self.numpy_only else best_kernel()).name
        return {"n": self.n, "d": self.d, "f": self.f, "threads": self.threads, "kernel": kernel}


def measure(size: Size, names: list[str], with_peers: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Parameters and rows of the result."""
    updates_ND = np.empty((size.n, size.d), np.float32)
    for index, row_D in enumerate(updates_ND):
        row_D[:] = update(index, size.d)
    limit_name, read_once = _read_once(updates_ND)
    elsewhere = peers(updates_ND, size.f, size.n - size.f - 2) if with_peers else {}
    rows = []
    for name in names:
        ours = both_passes(name, ArrayRows(updates_ND), size)
        works = {"ours": ours, "limit": read_once, **elsewhere.get(name, {})}
        if size.threads > 1:
            works["one thread"] = both_passes(name, ArrayRows(updates_ND), size, threads=1)
        taken = in_turn(works, size.repeats)
        cpu, limit = taken["ours"].cpu, taken["limit"].cpu
        ratios = {peer: taken[peer].cpu / cpu for peer in elsewhere.get(name, {})}
        rows.append(
            {
                "name": name,
                "seconds": cpu,
                "limit_seconds": limit,
                "ratio_to_limit": cpu / limit,
                "peer": min(ratios, key=ratios.__getitem__, default=None),
                "ratio_to_peer": min(ratios.values(), default=None),
                "peak_mb": peak_mb(ours),
                "wall_seconds": taken["ours"].wall,
                "speedup": taken["one thread"].wall / taken["ours"].wall if size.threads > 1 else None,
                "ratios_to_peers": ratios,
            }
        )
    return {**size.params(), "limit": limit_name}, rows


def both_passes(name: str, rows: Rows, size: Size, *, threads: int | None = None) -> Work:
    """A rule from the rows to the last block of the combined row. The blocks are let go: a server writes them away."""
    if size.numpy_only:
        engine.best_kernel = NumpyKernel
    *pre, last = name.split(" + ")
    aggregator = rule(last, pre=pre, **({} if last == "mean" else {"f": size.f}), **RULES[name])
    counts_N, workers = np.ones(rows.num_rows), Threads(threads or size.threads)
    reference = {"required": chosen(rows, [0]), "history": rows}.get(aggregator.rule.reference)

    def work() -> None:
        decision = aggregator.decide(rows, counts_N, reference=reference, workers=workers)
        for _ in engine.combine(rows, decision.combination, workers=workers):
            pass

    return work


def update(index: int, d: int) -> npt.NDArray[np.float32]:
    """What a site might send: noise of its own around a direction that all share, both of length √D / 100."""
    shared_D = np.random.default_rng(0).standard_normal(d, np.float32)
    shared_D += np.random.default_rng(1 + index).standard_normal(d, np.float32)
    shared_D *= np.float32(0.01)
    return shared_D


def _read_once(updates_ND: npt.NDArray[np.float32]) -> tuple[str, Work]:
    if importlib.util.find_spec("torch") is None:
        return "numpy sum, float32", updates_ND.sum
    import torch

    return "torch sum, float32", torch.from_numpy(updates_ND).sum
