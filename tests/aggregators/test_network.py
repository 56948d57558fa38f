"""By the 0/1 principle a network of comparisons orders everything if it orders all zeros and ones."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.aggregators.network import BOTH, MAXIMUM, MINIMUM, Network, middle_network, sorting_network


def after(network: Network, lines_LC: np.ndarray) -> np.ndarray:
    lines_LC = lines_LC.copy()
    for i, j, what in network.steps:
        low_C, high_C = np.minimum(lines_LC[i], lines_LC[j]), np.maximum(lines_LC[i], lines_LC[j])
        if what & MINIMUM:
            lines_LC[i] = low_C
        if what & MAXIMUM:
            lines_LC[j] = high_C
    return lines_LC


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


def test_a_network_does_no_work_that_changes_nothing() -> None:
    assert middle_network(20, 0).steps == ()
    full, half = len(sorting_network(20).steps), len(middle_network(20, 9).steps)
    assert half < full
    assert all(i < j and what in (MINIMUM, MAXIMUM, BOTH) for i, j, what in middle_network(20, 4).steps)
