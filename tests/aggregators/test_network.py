"""By the 0/1 principle a network of comparisons orders everything if it orders all zeros and ones."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.aggregators.network import BOTH, MAXIMUM, MINIMUM, RUN, Network, middle_network, sorting_network


def after(network: Network, lines_LC: np.ndarray) -> np.ndarray:
    lines_LC = lines_LC.copy()
    for i, j, what in network.steps:
        low_C, high_C = np.minimum(lines_LC[i], lines_LC[j]), np.maximum(lines_LC[i], lines_LC[j])
        if what & MINIMUM:
            lines_LC[i] = low_C
        if what & MAXIMUM:
            lines_LC[j] = high_C
    return lines_LC


def after_runs(network: Network, lines_LC: np.ndarray) -> np.ndarray:
    """The same by runs, where what a merge need not make becomes rubbish."""
    num_lines, columns = lines_LC.shape
    padding_LC = np.full((-num_lines % RUN, columns), np.inf)
    lines_LC = np.concatenate([lines_LC, padding_LC])
    for i, j, what in network.runs:
        lines = [*range(i, i + RUN), *range(j, j + RUN)][: RUN if i == j else 2 * RUN]
        lines_LC[lines] = np.sort(lines_LC[lines], axis=0)
        if not what & MINIMUM:
            lines_LC[lines[:RUN]] = -7
        if not what & MAXIMUM:
            lines_LC[lines[-RUN:]] = 7
    return lines_LC[:num_lines]


def inputs(num_lines: int) -> np.ndarray:
    """All columns of zeros and ones where they are few; random ones, and random orders, where they are many."""
    if num_lines <= 10:
        return np.arange(2**num_lines) >> np.arange(num_lines)[:, None] & 1
    rng = np.random.default_rng(num_lines)
    bits_LC = rng.random((num_lines, 2000)) < rng.random(2000)
    return np.hstack([bits_LC.astype(int), rng.permuted(np.tile(np.arange(num_lines)[:, None], 200), axis=0)])


@pytest.mark.parametrize("num_lines", [*range(1, 18), 20, 33, 51, 64, 100])
def test_a_sorting_network_sorts(num_lines: int) -> None:
    network = sorting_network(num_lines)
    lines_LC = inputs(num_lines)
    assert network.kept == tuple(range(num_lines))
    assert (after(network, lines_LC) == np.sort(lines_LC, axis=0)).all()


@pytest.mark.parametrize("num_lines", [*range(1, 18), 20, 33, 51, 64, 100])
def test_a_middle_network_keeps_the_middle_values(num_lines: int) -> None:
    lines_LC = inputs(num_lines)
    ordered_LC = np.sort(lines_LC, axis=0)
    for drop in {0, 1, num_lines // 5, num_lines // 4, (num_lines - 1) // 2} - {num_lines}:
        if 2 * drop >= num_lines:
            continue
        network = middle_network(num_lines, drop)
        kept_LC = after(network, lines_LC)[list(network.kept)]
        assert (np.sort(kept_LC, axis=0) == ordered_LC[drop : num_lines - drop]).all(), drop


@pytest.mark.parametrize("num_lines", [*range(1, 18), 20, 33, 51, 100])
def test_runs_and_steps_put_the_same_values_into_the_same_lines(num_lines: int) -> None:
    lines_LC = np.random.default_rng(num_lines).random((num_lines, 300))
    for network in (
        sorting_network(num_lines),
        *(middle_network(num_lines, drop) for drop in {0, num_lines // 5, (num_lines - 1) // 2}),
    ):
        kept = list(network.kept)
        assert (after_runs(network, lines_LC)[kept] == after(network, lines_LC)[kept]).all()


def test_a_network_does_no_work_that_changes_nothing() -> None:
    assert middle_network(20, 0).steps == middle_network(20, 0).runs == ()
    full, half = len(sorting_network(20).steps), len(middle_network(20, 9).steps)
    assert half < full
    assert all(i < j and what in (MINIMUM, MAXIMUM, BOTH) for i, j, what in middle_network(20, 4).steps)
