"""Deciding by distances alone is deciding as with the updates at hand."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.aggregators import rule
from foedus.aggregators.aggregator import Aggregator
from foedus.aggregators.by_distances import decide_by_distances
from foedus.aggregators.engine import squared_distances
from foedus.aggregators.geometry import Geometry
from foedus.aggregators.rows import ArrayRows
from foedus.errors import ConfigError, InvalidUpdate, TooFewUpdates


def updates(n: int = 12, d: int = 30) -> np.ndarray:
    updates_ND = np.random.default_rng(3).normal(size=(n, d)).astype(np.float32)
    updates_ND[4] *= 40
    updates_ND[9] += 5
    return updates_ND


def geometry(updates_ND: np.ndarray) -> Geometry:
    return Geometry(squared_distances(ArrayRows(updates_ND)))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("multi-krum", {"f": 2}),
        ("multi-krum", {"f": 2, "m": 5}),
        ("krum", {"f": 2}),
        ("mda", {"f": 2}),
        ("mean", {}),
        ("mean", {"reject_norm": 9.0}),
        ("multi-krum", {"f": 2, "reject_norm": 9.0}),
        ("geometric-median", {"f": 2}),
    ],
)
def test_the_same_as_with_the_updates(name: str, parameters: dict) -> None:
    aggregator: Aggregator = rule(name, **parameters)
    seen = aggregator.decide(ArrayRows(updates()), np.ones(12))
    unseen = decide_by_distances(aggregator, geometry(updates()))
    assert unseen.selected == seen.selected
    assert unseen.refused == seen.refused
    np.testing.assert_allclose(unseen.weights_N, seen.weights_N, rtol=1e-12)
    if seen.scores_N is not None:
        np.testing.assert_array_equal(unseen.scores_N, seen.scores_N)


def test_what_was_found_worthless_before_lowers_f() -> None:
    rest_ND = updates()[:8]
    shown = decide_by_distances(rule("multi-krum", f=2), geometry(rest_ND), num_refused=1)
    assert shown.selected == decide_by_distances(rule("multi-krum", f=1), geometry(rest_ND)).selected
    with pytest.raises(InvalidUpdate, match="3 of 11 updates are worthless"):
        decide_by_distances(rule("multi-krum", f=2), geometry(rest_ND), num_refused=3)
    with pytest.raises(TooFewUpdates):
        decide_by_distances(rule("multi-krum", f=3), geometry(rest_ND))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("median", {}), ("dnc", {"f": 2}), ("bulyan", {"f": 2}), ("multi-krum", {"f": 2, "pre": ("nnm",)})],
)
def test_what_needs_more_is_refused(name: str, parameters: dict) -> None:
    with pytest.raises(ConfigError, match="needs more than"):
        decide_by_distances(rule(name, **parameters), geometry(updates()))
