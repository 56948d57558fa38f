from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from foedus.errors import Corrupt, InvalidUpdate, LayoutMismatch, StoreError
from foedus.layout import Layout, Role, TensorSpec
from foedus.server import update_file
from foedus.server.update_file import LARGEST, UpdateFile, scan

LAYOUT = Layout(
    (
        TensorSpec("conv", (2, 3), "float32", Role.TRAINABLE),
        TensorSpec("head", (4,), "float32", Role.TRAINABLE),
        TensorSpec("mean", (3,), "float32", Role.BUFFER),
        TensorSpec("var", (3,), "float32", Role.BUFFER),
        TensorSpec("count", (), "int64", Role.COUNTER),
    )
)


def _write(path: Path, floats: np.ndarray, counter: int = 0) -> Path:
    path.write_bytes(floats.astype("<f4").tobytes() + np.int64(counter).tobytes())
    return path


@pytest.mark.parametrize("step", [1, 3, 1 << 18])
@pytest.mark.parametrize(
    ("position", "name"), [(0, "conv"), (5, "conv"), (6, "head"), (9, "head"), (10, "mean"), (12, "mean"), (15, "var")]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_tensor_that_is_not_finite_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int, name: str, value: float, step: int
) -> None:
    monkeypatch.setattr(update_file, "SCAN_VALUES", step)
    floats = np.ones(16)
    floats[position] = value
    floats[15] = np.nan
    with pytest.raises(InvalidUpdate, match=f"tensor '{name}'"):
        scan(LAYOUT, _write(tmp_path / "a", floats))


def test_finite_updates_pass_whatever_their_counters_look_like(tmp_path: Path) -> None:
    nan_bits = int(np.array([np.nan, np.nan], np.float32).view(np.int64)[0])
    scan(LAYOUT, _write(tmp_path / "a", np.full(16, -LARGEST), nan_bits))


@pytest.mark.parametrize("value", [1.001e18, -3.4e38])
def test_a_value_that_could_overflow_an_optimizer_is_refused(tmp_path: Path, value: float) -> None:
    values = np.zeros(16)
    values[11] = value
    with pytest.raises(InvalidUpdate, match=r"e\+\d\d in "):
        scan(LAYOUT, _write(tmp_path / "a", values))


@pytest.mark.parametrize("extra", [-1, 1])
def test_another_size_is_another_layout(tmp_path: Path, extra: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(LAYOUT.update_bytes + extra))
    for check in (lambda: UpdateFile.open(path, LAYOUT), lambda: scan(LAYOUT, path)):
        with pytest.raises(LayoutMismatch, match=f"{72 + extra} bytes, expected 72"):
            check()


def test_a_missing_update_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="absent") as caught:
        scan(LAYOUT, tmp_path / "absent")
    assert not isinstance(caught.value, Corrupt)
