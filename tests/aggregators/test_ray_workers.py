"""The same bits from a Ray cluster of two processes on this machine."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from foedus.aggregators.decision import Closest, Coordinatewise, WeightedSum
from foedus.aggregators.engine import combine, combine_then, rows_not_finite, squared_distances
from foedus.aggregators.ray_workers import RayWorkers
from foedus.aggregators.rows import ArrayRows, MappedRows, Window
from foedus.errors import ConfigError

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def workers():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield RayWorkers()
    ray.shutdown()


def test_a_cluster_gives_the_same_bits(workers: RayWorkers, tmp_path) -> None:
    updates_ND = np.random.default_rng(0).standard_normal((5, 300_001), dtype=np.float32)
    for index, row_D in enumerate(updates_ND):
        row_D.tofile(tmp_path / str(index))
    files = MappedRows(tuple(Window(tmp_path / str(index)) for index in range(5)), 300_001)
    for rows in (ArrayRows(updates_ND), files):
        assert squared_distances(rows, workers=workers).tobytes() == squared_distances(rows).tobytes()
        for combination in (WeightedSum(np.full(5, 0.2)), Coordinatewise(Closest(3), (0, 1, 2, 3, 4))):
            near = [row_C.tobytes() for _, row_C in combine(rows, combination, block=40_000)]
            far = [row_C.tobytes() for _, row_C in combine(rows, combination, block=40_000, workers=workers)]
            assert far == near
    updates_ND[3, 200_000] = np.nan
    assert rows_not_finite(ArrayRows(updates_ND), workers=workers) == (3,)


def test_blocks_are_computed_elsewhere_and_come_back_in_order(workers: RayWorkers) -> None:
    rows = ArrayRows(np.ones((2, 100), np.float32))
    seen = list(
        combine_then(lambda start, _: (start, os.getpid()), rows, WeightedSum(np.ones(2)), block=5, workers=workers)
    )
    assert [start for start, _ in seen] == list(range(0, 100, 5))
    assert os.getpid() not in {pid for _, pid in seen}


def test_without_ray_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="needs Ray") as caught:
        list(RayWorkers().map(lambda span: span, [(0, 1)]))
    assert caught.value.hint == "pip install 'foedus[ray]'"
