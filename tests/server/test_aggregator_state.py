"""Histories and the last aggregate at rest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from foedus.errors import Corrupt, StoreError
from foedus.layout import Layout, Role, TensorSpec
from foedus.server import aggregator_state
from foedus.server.aggregator_state import StoredRows, add_to_histories
from foedus.server.update_file import UpdateFile

D = 10
LAYOUT = Layout((TensorSpec("w", (D,), "float32", Role.TRAINABLE), TensorSpec("b", (2,), "float32", Role.BUFFER)))


def _updates(folder: Path, seed: int, sites: str) -> dict[str, UpdateFile]:
    rng, updates = np.random.default_rng(seed), {}
    for site in sites:
        path = folder / f"{site}{seed}"
        path.write_bytes(rng.standard_normal(D + 2).astype("<f4").tobytes())
        updates[site] = UpdateFile.open(path, LAYOUT)
    return updates


def _row(update: UpdateFile) -> np.ndarray:
    return np.fromfile(update.path, "<f4", D)


def test_histories_add_up_by_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregator_state, "COPIED_VALUES", 3)
    first, second = _updates(tmp_path, 1, "ab"), _updates(tmp_path, 2, "bc")
    one = add_to_histories(None, first, LAYOUT, tmp_path / "one")
    two = add_to_histories(one.path, second, LAYOUT, tmp_path / "two")
    assert two.sha256 == hashlib.sha256(two.path.read_bytes()).hexdigest()
    rows = safetensors.numpy.load_file(two.path)
    assert set(rows) == {"a", "b", "c"}
    np.testing.assert_array_equal(rows["a"], _row(first["a"]))
    np.testing.assert_allclose(rows["b"], _row(first["b"]).astype(np.float64) + _row(second["b"]), rtol=1e-6)
    np.testing.assert_array_equal(rows["c"], _row(second["c"]))
    chosen = StoredRows.open(two.path, LAYOUT).rows(["c", "a"], LAYOUT)
    np.testing.assert_array_equal(chosen.read(0, D), [rows["c"], rows["a"]])


def test_a_state_of_another_model_or_no_state_is_corrupt(tmp_path: Path) -> None:
    written = add_to_histories(None, _updates(tmp_path, 1, "ab"), LAYOUT, tmp_path / "state")
    other = Layout((TensorSpec("w", (D + 1,), "float32", Role.TRAINABLE),))
    with pytest.raises(Corrupt, match="is not the aggregator's state"):
        StoredRows.open(written.path, other)
    for content in (
        b"",
        b"\xff" * 20,
        b"\x02" + bytes(7) + b"{}",
        b"\x02" + bytes(7) + b"[]",
        b"\x01" + bytes(7) + b"7",
    ):
        written.path.write_bytes(content)
        with pytest.raises(Corrupt):
            StoredRows.open(written.path, LAYOUT)
    with pytest.raises(StoreError):
        StoredRows.open(tmp_path / "absent", LAYOUT)
