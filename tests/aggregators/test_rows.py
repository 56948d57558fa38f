from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from foedus.aggregators.rows import ArrayRows, FileRows, MappedRows, Rows, ScaledRows, Window, chosen, stacked
from foedus.errors import Corrupt, InvalidUpdate, StoreError

STORES = [FileRows, MappedRows]


def _files(folder: Path, updates_ND: np.ndarray, before: bytes = b"", after: bytes = b"") -> tuple[Window, ...]:
    windows = tuple(Window(folder / f"{index}.update", len(before)) for index in range(len(updates_ND)))
    for window, row_D in zip(windows, updates_ND, strict=True):
        window.path.write_bytes(before + row_D.astype("<f4").tobytes() + after)
    return windows


@pytest.mark.parametrize("store", STORES)
def test_files_and_arrays_hold_the_same_rows(tmp_path: Path, store: type[FileRows | MappedRows]) -> None:
    updates_ND = np.random.default_rng(0).standard_normal((3, 101), dtype=np.float32)
    array: Rows = ArrayRows(updates_ND)
    files: Rows = store(_files(tmp_path, updates_ND, b"head", b"the rest"), 101)
    assert (array.num_rows, array.num_columns) == (files.num_rows, files.num_columns) == (3, 101)
    for start, stop in [(0, 101), (0, 1), (7, 50), (100, 101)]:
        np.testing.assert_array_equal(array.read(start, stop), updates_ND[:, start:stop])
        np.testing.assert_array_equal(files.read(start, stop), updates_ND[:, start:stop])


def test_files_are_read_into_the_room_given(tmp_path: Path) -> None:
    updates_ND = np.arange(12, dtype=np.float32).reshape(2, 6)
    room_NC = np.zeros((2, 4), np.float32)
    block = FileRows(_files(tmp_path, updates_ND), 6).read(1, 4, room_NC)
    assert all(np.shares_memory(row_C, room_NC) for row_C in block)
    np.testing.assert_array_equal(block, updates_ND[:, 1:4])


def test_mapped_rows_are_pages_of_the_files(tmp_path: Path) -> None:
    updates_ND = np.arange(8192, dtype=np.float32).reshape(2, 4096)
    block = MappedRows(_files(tmp_path, updates_ND), 4096).read(2000, 3000)
    np.testing.assert_array_equal(block, updates_ND[:, 2000:3000])
    assert not any(row_C.flags.writeable or row_C.flags.owndata for row_C in block)


@pytest.mark.parametrize("num_rows", [2, 40])
def test_mapped_rows_may_begin_and_end_anywhere_on_a_page(tmp_path: Path, num_rows: int) -> None:
    """Few rows are mapped by huge pages: in the first, across two, and in the last, which the file leaves unfilled."""
    row_D = np.arange(3 << 18, dtype=np.float32)
    (tmp_path / "row").write_bytes(b"head" + row_D.tobytes())
    rows = MappedRows((Window(tmp_path / "row", 4),) * num_rows, row_D.size)
    for start, stop in [(0, 1), (1000, 2000), ((1 << 19) - 9, (1 << 19) + 9), (row_D.size - 5, row_D.size), (7, 7)]:
        for read_C in rows.read(start, stop):
            np.testing.assert_array_equal(read_C, row_D[start:stop])


@pytest.mark.parametrize("store", STORES)
def test_a_file_cut_short_is_corrupt_and_named(tmp_path: Path, store: type[FileRows | MappedRows]) -> None:
    windows = _files(tmp_path, np.ones((2, 10), np.float32))
    windows[1].path.write_bytes(windows[1].path.read_bytes()[:-1])
    rows = store(windows, 10)
    rows.read(0, 9)
    with pytest.raises(Corrupt, match=r"1\.update ends after 39 bytes, expected at least 40"):
        rows.read(5, 10)


@pytest.mark.parametrize("store", STORES)
def test_a_missing_file_is_a_store_error(tmp_path: Path, store: type[FileRows | MappedRows]) -> None:
    with pytest.raises(StoreError, match="absent"):
        store((Window(tmp_path / "absent"),), 10).read(0, 10)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, np.bool_])
def test_other_real_numbers_become_float32(dtype: type) -> None:
    block = ArrayRows(np.array([[0, 1], [1, 1]], dtype)).read(0, 2)
    assert {row_C.dtype for row_C in block} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(block, [[0, 1], [1, 1]])


def test_what_float32_cannot_hold_becomes_infinite_without_a_warning() -> None:
    np.testing.assert_array_equal(ArrayRows(np.array([[1e300, -1e39]])).read(0, 2), [[np.inf, -np.inf]])


@pytest.mark.parametrize("dtype", [np.complex64, np.dtype("U3"), np.object_])
def test_what_is_no_real_number_is_refused(dtype: type) -> None:
    with pytest.raises(InvalidUpdate, match="expected real numbers"):
        ArrayRows(np.zeros((2, 2), dtype))


def test_stores_can_be_stacked_chosen_from_and_scaled(tmp_path: Path) -> None:
    updates_ND = np.random.default_rng(1).standard_normal((4, 30), dtype=np.float32)
    both = stacked(FileRows(_files(tmp_path, updates_ND[:2]), 30), ArrayRows(updates_ND[2:].astype(np.float64)))
    room_NC = np.empty((4, 30), np.float32)
    np.testing.assert_array_equal(both.read(3, 20, room_NC), updates_ND[:, 3:20])
    some = chosen(both, [3, 0])
    assert (some.num_rows, some.num_columns) == (2, 30)
    np.testing.assert_array_equal(some.read(3, 20, np.empty((2, 30), np.float32)), updates_ND[[3, 0], 3:20])
    scaled = ScaledRows(both, np.array([1, 0.5, 2, 0.1]))
    expected = updates_ND * np.array([1, 0.5, 2, 0.1])[:, None]
    np.testing.assert_array_equal(scaled.read(0, 30), expected.astype(np.float32))
    with pytest.raises(InvalidUpdate, match="rows of 3 values cannot join rows of 30"):
        stacked(both, ArrayRows(np.ones((1, 3))))


def test_choosing_files_reads_no_other(tmp_path: Path) -> None:
    windows = _files(tmp_path, np.ones((3, 5), np.float32))
    windows[1].path.unlink()
    assert len(chosen(MappedRows(windows, 5), [0, 2]).read(0, 5)) == 2


def test_an_array_of_one_dimension_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match=r"shape \(3,\)"):
        ArrayRows(np.ones(3, np.float32))
