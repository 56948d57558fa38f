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
from foedus.aggregators.workers import Threads, Workers
from foedus.errors import ConfigError, Corrupt, StoreError
from foedus.layout import Layout, Role, TensorSpec
from foedus.modelfile import Model, write_model
from foedus.server.aggregation import step_model
from foedus.server.optimizers import FedAdam
from foedus.server.update_file import UpdateFile

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


def test_the_next_model_is_the_same_file(workers: RayWorkers, tmp_path) -> None:
    layout = Layout((TensorSpec("w", (500,), "float32", Role.TRAINABLE), TensorSpec("b", (9,), "float32", Role.BUFFER)))
    rng = np.random.default_rng(1)
    trainable_D, buffers_B = rng.standard_normal(500, np.float32), rng.random(9, np.float32)
    model = write_model(tmp_path / "model", Model(layout, trainable_D, buffers_B, np.empty(0, np.int64), {}))
    updates = []
    for index in range(3):
        rng.standard_normal(509, np.float32).tofile(tmp_path / str(index))
        updates.append(UpdateFile.open(tmp_path / str(index), layout))

    def step(name: str, workers: Workers) -> str:
        out, state_out = tmp_path / name, tmp_path / f"{name}.state"
        weights = WeightedSum(np.full(3, 1 / 3))
        made = step_model(
            model, updates, weights, FedAdam(), None, out=out, state_out=state_out, block=100, workers=workers
        )
        return made.model.sha256

    assert step("far", workers) == step("near", Threads(1))


def test_what_a_block_raises_is_raised_here(workers: RayWorkers, tmp_path) -> None:
    (tmp_path / "short").write_bytes(b"1234")
    rows = MappedRows((Window(tmp_path / "short"),), 10)
    with pytest.raises(Corrupt, match="short ends after 4 bytes, expected at least 40"):
        list(combine(rows, WeightedSum(np.ones(1)), workers=workers))


def test_a_cluster_that_dies_is_an_error_and_the_run_can_be_resumed(workers: RayWorkers) -> None:
    with pytest.raises(StoreError, match="the Ray cluster failed"):
        list(workers.map(lambda _: os._exit(1), [(0, 1)]))


def test_without_ray_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="needs Ray") as caught:
        RayWorkers()
    assert caught.value.hint == "pip install 'foedus[ray]'"
