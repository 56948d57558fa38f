"""One self-contained HTML page about a run: for a board to read and an archive to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from .. import __version__
from ..output import moment
from .score_map import score_map

WIDTH, HEIGHT = 640, 200
CELL, CELLS_WIDTH = 14, 460


def render(run: Mapping[str, Any]) -> str:
    """The page for a run as ``foedus run show --json`` gives it. Every text in it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("foedus.server", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["moment"] = moment
    rounds = [r for r in run["rounds"] if r["evaluation_metrics"]]
    names = sorted({name for r in rounds for name in r["evaluation_metrics"]})
    curves = [
        (
            name,
            *_curve([(r["number"], r["evaluation_metrics"][name]) for r in rounds if name in r["evaluation_metrics"]]),
        )
        for name in names
    ]
    return environment.get_template("report.html").render(
        run=run,
        curves=curves,
        sites=_sites(run["rounds"]),
        refusals=[
            (r["number"], p)
            for r in run["rounds"]
            for p in r["participations"]
            if p["verdict"] not in ("accepted", "asked")
        ],
        scores=score_map(run["rounds"]),
        across=min(CELL, CELLS_WIDTH / max(1, len(run["rounds"]))),
        cell=CELL,
        version=__version__,
        width=WIDTH,
        height=HEIGHT,
    )


def _curve(points: Sequence[tuple[int, float]]) -> tuple[str, float, float, float]:
    """SVG polyline points, and the least, greatest and last value."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    across, up = max(xs[-1] - xs[0], 1), (high - low) or 1.0
    line = " ".join(f"{(x - xs[0]) / across * WIDTH:.1f},{HEIGHT - (y - low) / up * HEIGHT:.1f}" for x, y in points)
    return line, low, high, ys[-1]


def _sites(rounds: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, int, int]]:
    """(name, rounds asked, rounds counted, examples last reported) of each site."""
    found: dict[str, tuple[int, int, int]] = {}
    for round in rounds:
        for part in round["participations"]:
            if part["phase"] == "train":
                asked, counted, examples = found.get(part["site"], (0, 0, 0))
                accepted = part["verdict"] == "accepted"
                found[part["site"]] = (asked + 1, counted + accepted, part["num_examples"] if accepted else examples)
    return [(name, *values) for name, values in sorted(found.items())]
