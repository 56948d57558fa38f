from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from foedus.aggregators.rows import ArrayRows, FileRows, Rows
from foedus.errors import Corrupt, InvalidUpdate, StoreError


def _files(folder: Path, updates_ND: np.ndarray, before: bytes = b"", after: bytes = b"") -> tuple[Path, ...]:
    paths = tuple(folder / f"{index}.update" for index in range(len(updates_ND)))
    for path, row_D in zip(paths, updates_ND, strict=True):
        path.write_bytes(before + row_D.astype("<f4").tobytes() + after)
    return paths


def test_files_and_arrays_hold_the_same_rows(tmp_path: Path) -> None:
    updates_ND = np.random.default_rng(0).standard_normal((3, 101), dtype=np.float32)
    array: Rows = ArrayRows(updates_ND)
    files: Rows = FileRows(_files(tmp_path, updates_ND, b"head", b"the rest"), 4, 101)
    assert (array.num_rows, array.num_columns) == (files.num_rows, files.num_columns) == (3, 101)
    for start, stop in [(0, 101), (0, 1), (7, 50), (100, 101)]:
        np.testing.assert_array_equal(array.read(start, stop), updates_ND[:, start:stop])
        np.testing.assert_array_equal(files.read(start, stop), updates_ND[:, start:stop])


def test_files_are_read_into_the_room_given(tmp_path: Path) -> None:
    updates_ND = np.arange(12, dtype=np.float32).reshape(2, 6)
    room_NC = np.zeros((2, 4), np.float32)
    block_NC = FileRows(_files(tmp_path, updates_ND), 0, 6).read(1, 4, room_NC)
    assert np.shares_memory(block_NC, room_NC)
    np.testing.assert_array_equal(block_NC, updates_ND[:, 1:4])


def test_a_file_cut_short_is_corrupt_and_named(tmp_path: Path) -> None:
    paths = _files(tmp_path, np.ones((2, 10), np.float32))
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    rows = FileRows(paths, 0, 10)
    rows.read(0, 9)
    with pytest.raises(Corrupt, match=r"1\.update ends after 39 bytes, expected at least 40"):
        rows.read(5, 10)


def test_a_missing_file_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="absent"):
        FileRows((tmp_path / "absent",), 0, 10).read(0, 10)


def test_an_array_of_one_dimension_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match=r"shape \(3,\)"):
        ArrayRows(np.ones(3, np.float32))
