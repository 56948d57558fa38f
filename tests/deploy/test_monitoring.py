"""Alerts, board and documentation speak of the metrics that exist, with the labels they have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from foedus.server.telemetry import new_metrics
from prometheus_client import Metric

ROOT = Path(__file__).resolve().parents[2]
DURATION = re.compile(r"\d+[smhd]")


def labels_by_metric() -> dict[str, set[str]]:
    """Every metric as the documentation names it, from the live registry."""
    metrics = new_metrics("0")
    metrics.phase_ended("collect", 1)
    metrics.update_decided("accepted")
    metrics.left_out("krum", 1)
    metrics.site_stands("a", 0.5)
    metrics.site_seen("a", 1)
    metrics.certificate_issued("a", 1)
    metrics.rpc_ended("x", 1)
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        if family.name.startswith("foedus_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = _labels(family)
    return found


def _labels(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels} - {"le"}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return json.loads((ROOT / "deploy" / "grafana.json").read_text())["panels"]


def expressions() -> list[str]:
    return [rule["expr"] for rule in alerts()] + [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_asks_for_metrics_that_exist(expression: str) -> None:
    known = labels_by_metric()
    asked = re.findall(r"\b(foedus_\w+)(?:\{([^}]*)\})?", expression)
    assert asked
    for name, selector in asked:
        base = re.sub("_(bucket|sum|count)$", "", name)
        assert base in known
        for label in re.findall(r"(\w+)\s*[=!]", re.sub(r'"[^"]*"', "", selector)):
            assert label in known[base]
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    assert grouped - {"le"} <= set().union(*known.values())
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    assert all(DURATION.fullmatch(window) for window in re.findall(r"\[([^\]]*)\]", expression))


def test_every_alert_says_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))
    for rule in alerts():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["action"].endswith(".")
        assert DURATION.fullmatch(rule.get("for", "1m"))


def test_panels_do_not_overlap_and_use_the_chosen_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_metric_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(foedus_\w+)(?:\{([\w,]+)\})?` \|", page, re.MULTILINE)
    assert {name: set(filter(None, labels.split(","))) for name, labels in rows} == labels_by_metric()


def test_every_metric_is_on_the_board() -> None:
    shown = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    assert [name for name in labels_by_metric() if name not in shown] == []
