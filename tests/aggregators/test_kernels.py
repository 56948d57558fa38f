"""Both kernels compute what kernel.py says, and the same bits, in every variant that the processor can run."""

from __future__ import annotations

import ctypes
import logging
import pickle
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from foedus.aggregators.kernel import CHUNK_COLUMNS, LANES, Kernel
from foedus.aggregators.kernel_choice import best_kernel
from foedus.aggregators.kernel_compiled import CompiledKernel
from foedus.aggregators.kernel_numpy import NumpyKernel
from foedus.aggregators.network import middle_network, sorting_network
from foedus.aggregators.rows import Block
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "aggregators" / "kernels.c"
# What the compiler may use, and what the processor must have for that.
VARIANTS = {
    "as shipped": ([], set()),
    "baseline": (["-DONE_VARIANT"], set()),
    "avx2": (["-DONE_VARIANT", "-mavx2"], {"avx2"}),
    "avx2 and fma": (["-DONE_VARIANT", "-mavx2", "-mfma"], {"avx2", "fma"}),
    "avx512f": (["-DONE_VARIANT", "-mavx512f"], {"avx512f"}),
}
NUMPY = NumpyKernel()
Compile = Callable[..., Path]


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("there is no C compiler")
    return found


@pytest.fixture(scope="module")
def compile_c(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles C files as an installation does."""
    (extension,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]

    def compiled(*sources: Path, flags: list[str]) -> Path:
        out = tmp_path_factory.mktemp("kernels") / "kernels.so"
        command = [
            compiler,
            "-shared",
            "-fPIC",
            *extension["extra-compile-args"],
            *flags,
            "-Wall",
            "-Wextra",
            "-Werror",
        ]
        made = subprocess.run([*command, "-o", out, *sources], capture_output=True, text=True, timeout=120, check=False)
        assert made.returncode == 0, made.stderr
        return out

    return compiled


@pytest.fixture(scope="module", params=VARIANTS)
def compiled(request: pytest.FixtureRequest, compile_c: Compile, shipped: Path) -> CompiledKernel:
    """The compiled kernel in one variant."""
    flags, needed = VARIANTS[request.param]
    if needed - set(Path("/proc/cpuinfo").read_text().split() if needed else ()):
        pytest.skip(f"this processor lacks {', '.join(sorted(needed))}")
    return CompiledKernel.load(compile_c(SOURCE, flags=flags) if flags else shipped)


@pytest.fixture(scope="module")
def shipped(compile_c: Compile) -> Path:
    """kernels.c, compiled as it is shipped."""
    return compile_c(SOURCE, flags=[])


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Each kernel in turn, the compiled one as it is shipped."""
    return NUMPY if request.param == "numpy" else CompiledKernel.load(request.getfixturevalue("shipped"))


def results(kernel: Kernel, block: Block, weights_N: np.ndarray) -> Iterator[tuple[str, bytes]]:
    """The bytes of everything that a kernel can compute of a block."""
    n, out_C = len(block), np.empty(block[0].size, np.float32)
    sums_PP = np.zeros((n + 1, n + 1))
    for _ in range(2):
        kernel.squared_distances(block, sums_PP)
        yield "distances", sums_PP.tobytes()
    kernel.weighted_sum(block, weights_N, out_C)
    yield "weighted sum", out_C.tobytes()
    for drop in sorted({0, n // 5, (n - 1) // 2}):
        finite = kernel.middle(block, middle_network(n, drop), out_C)
        yield f"middle {drop}", out_C.tobytes() + bytes([finite])
    for count in sorted({1, n // 3 or 1, n - n // 5, n}):
        finite = kernel.closest(block, sorting_network(n), count, out_C)
        yield f"closest {count}", out_C.tobytes() + bytes([finite])
    yield "finite", kernel.finite(block).tobytes()


def assert_same(kernel: Kernel, block: Block, weights_N: np.ndarray) -> None:
    pairs = zip(results(NUMPY, block, weights_N), results(kernel, block, weights_N), strict=True)
    for (what, expected), (_, got) in pairs:
        assert got == expected, f"{what} of {len(block)} x {block[0].size}"


def draw(n: int, columns: int, seed: int = 0) -> tuple[Block, np.ndarray]:
    """Rows of very different size, many equal values, and weights some of which are 0."""
    rng = np.random.default_rng([n, columns, seed])
    rows_NC = rng.standard_normal((n, columns)) * 10.0 ** rng.integers(-3, 4, (n, 1))
    rows_NC = np.where(rng.random((n, columns)) < 0.2, np.round(rows_NC), rows_NC).astype(np.float32)
    return list(rows_NC), rng.random(n) * (rng.random(n) < 0.8)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 20, 51, 100])
def test_the_same_bits_for_every_shape(compiled: CompiledKernel, n: int) -> None:
    for columns in (0, 1, 15, 1023, 1024, 1025, 5000 if n < 50 else 2100):
        assert_same(compiled, *draw(n, columns))


def test_the_same_bits_across_the_parts_that_they_work_on(compiled: CompiledKernel) -> None:
    for columns in (127, 128, 129, 16384, 16385, 40000):
        assert_same(compiled, *draw(6, columns))


def test_the_same_bits_for_many_rows(compiled: CompiledKernel) -> None:
    assert_same(compiled, *draw(130, 1100))


@pytest.mark.parametrize("special", [-0.0, 1e-45, -1e-40, 3e38, -3e38, 1e20])
def test_the_same_bits_for_special_values(compiled: CompiledKernel, special: float) -> None:
    block, weights_N = draw(9, 2000)
    for row_C in block:
        row_C[np.random.default_rng(0).random(row_C.size) < 0.5] = special
    block[0][:] = special
    block[1][:] = -np.float32(special)
    assert_same(compiled, block, weights_N)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_same_bits_for_any_finite_values(compiled: CompiledKernel, data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(0, 300)))
    rows_NC = data.draw(
        hnp.arrays(np.float32, shape, elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
    )
    weights_N = data.draw(hnp.arrays(np.float64, shape[0], elements=st.floats(-10, 10)))
    assert_same(compiled, list(rows_NC), weights_N)


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 12])
def test_rows_may_begin_at_any_byte(kernel: Kernel, offset: int) -> None:
    aligned, weights_N = draw(5, 3000)
    block = [np.frombuffer(bytes(offset) + row_C.tobytes(), np.float32, 3000, offset) for row_C in aligned]
    assert list(results(kernel, block, weights_N)) == list(results(NUMPY, aligned, weights_N))


def test_rows_may_be_strided(kernel: Kernel) -> None:
    aligned, weights_N = draw(5, 3000)
    block = list(np.asfortranarray(np.array(aligned)))
    assert not block[0].flags.c_contiguous
    assert list(results(kernel, block, weights_N)) == list(results(NUMPY, aligned, weights_N))


def test_the_rows_are_left_alone(kernel: Kernel) -> None:
    block, weights_N = draw(8, 2000)
    for row_C in block:
        row_C.flags.writeable = False
    before = [row_C.tobytes() for row_C in block]
    list(results(kernel, block, weights_N))
    assert [row_C.tobytes() for row_C in block] == before


def test_calls_may_run_side_by_side(kernel: Kernel) -> None:
    draws = [draw(20, 5000, seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda drawn: list(results(kernel, *drawn)), draws))
    assert together == [list(results(kernel, *drawn)) for drawn in draws]


def test_distances_are_those_of_the_stated_order(kernel: Kernel) -> None:
    block, _ = draw(4, 2500)
    sums_PP = np.zeros((5, 5))
    kernel.squared_distances(block, sums_PP)
    points = [*block, np.zeros(2500, np.float32)]
    for i in range(5):
        for j in range(5):
            total = 0.0
            for start in range(0, 2500, CHUNK_COLUMNS):
                difference = points[i][start : start + CHUNK_COLUMNS] - points[j][start : start + CHUNK_COLUMNS]
                squares = np.zeros(CHUNK_COLUMNS, np.float32)
                squares[: difference.size] = difference * difference
                lanes = [np.float32(0)] * LANES
                for k, square in enumerate(squares):
                    lanes[k % LANES] += square
                folded = [float(lane) for lane in lanes]
                while len(folded) > 1:
                    half = len(folded) // 2
                    folded = [x + y for x, y in zip(folded[:half], folded[half:], strict=True)]
                total += folded[0]
            assert sums_PP[i, j] == total, (i, j)


@pytest.mark.parametrize(("n", "columns"), [(1, 10), (2, 1024), (7, 3000), (20, 5000)])
def test_distances_are_near_the_exact_ones(kernel: Kernel, n: int, columns: int) -> None:
    block, _ = draw(n, columns)
    sums_PP = np.zeros((n + 1, n + 1))
    kernel.squared_distances(block, sums_PP)
    points_PC = np.array([*block, np.zeros(columns)], np.float64)
    exact_PP = ((points_PC[:, None] - points_PC) ** 2).sum(axis=-1)
    np.testing.assert_allclose(sums_PP, exact_PP, rtol=1e-6)
    assert (sums_PP == sums_PP.T).all()
    assert (np.diagonal(sums_PP) == 0).all()


def test_rows_too_far_apart_are_infinitely_far_and_leave_the_others_alone(kernel: Kernel) -> None:
    block, _ = draw(4, 1500)
    near_PP, all_PP = np.zeros((4, 4)), np.zeros((5, 5))
    kernel.squared_distances(block[:3], near_PP)
    block[3][7] = 3e38
    kernel.squared_distances(block, all_PP)
    others = [0, 1, 2, 4]
    assert (all_PP[np.ix_(others, others)] == near_PP).all()
    assert (all_PP[3, others] == np.inf).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_at_no_finite_distance_from_the_origin(kernel: Kernel, bad: float) -> None:
    block, _ = draw(3, 1500)
    block[1][1400] = bad
    sums_PP = np.zeros((4, 4))
    kernel.squared_distances(block, sums_PP)
    assert np.isfinite(sums_PP[:, -1]).tolist() == [True, False, True, True]


@pytest.mark.parametrize("n", [1, 2, 5, 6, 20])
def test_middle_is_the_median_and_the_trimmed_mean(kernel: Kernel, n: int) -> None:
    block, _ = draw(n, 700)
    ordered_NC = np.sort(np.array(block, np.float64), axis=0)
    out_C = np.empty(700, np.float32)
    for drop in range((n + 1) // 2):
        assert kernel.middle(block, middle_network(n, drop), out_C)
        expected_C = ordered_NC[drop : n - drop].mean(axis=0)
        np.testing.assert_allclose(out_C, expected_C, rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(out_C, np.median(np.array(block, np.float64), axis=0).astype(np.float32))


@pytest.mark.parametrize(("n", "count"), [(1, 1), (2, 1), (5, 3), (12, 4), (20, 16), (20, 7), (9, 9)])
def test_closest_is_the_mean_of_those_nearest_to_the_median(kernel: Kernel, n: int, count: int) -> None:
    block, _ = draw(n, 700)
    out_C = np.empty(700, np.float32)
    assert kernel.closest(block, sorting_network(n), count, out_C)
    for column, got in enumerate(out_C):
        values = sorted(float(row_C[column]) for row_C in block)
        median = (values[(n - 1) // 2] + values[n // 2]) / 2
        # Of two as close, the smaller.
        nearest = sorted(values, key=lambda value: (abs(value - median), value))[:count]
        assert got == pytest.approx(sum(nearest) / count, rel=1e-6, abs=1e-10), column


def test_one_value_far_below_takes_no_digits_from_the_closest(kernel: Kernel) -> None:
    block = [np.full(3, value, np.float32) for value in (-3e38, 1.0, 2.0, 4.0)]
    out_C = np.empty(3, np.float32)
    assert kernel.closest(block, sorting_network(4), 2, out_C)
    assert (out_C == 1.5).all()


def test_a_weighted_sum_is_rounded_once(kernel: Kernel) -> None:
    block = [np.array([1.0, 3e38, 1e-45], np.float32), np.array([2.0**-30, 3e38, 1e-45], np.float32)]
    out_C = np.empty(3, np.float32)
    kernel.weighted_sum(block, np.array([1.0, 1.0]), out_C)
    assert out_C.tolist() == [1.0, np.inf, float(np.float32(2.8e-45))]
    kernel.weighted_sum(block, np.array([-1.0, 1.0]), out_C)
    assert out_C.tolist() == [float(np.float32(2.0**-30 - 1)), 0.0, 0.0]


def test_a_row_of_weight_zero_leaves_no_trace(kernel: Kernel) -> None:
    block, _ = draw(5, 1500)
    block[2][:] = np.nan
    out_C, without_C = np.empty((2, 1500), np.float32)
    kernel.weighted_sum(block, np.array([0.5, 0.25, 0.0, 1.0, -2.0]), out_C)
    kernel.weighted_sum([*block[:2], *block[3:]], np.array([0.5, 0.25, 1.0, -2.0]), without_C)
    assert out_C.tobytes() == without_C.tobytes()
    kernel.weighted_sum(block, np.zeros(5), out_C)
    assert out_C.tobytes() == bytes(out_C.nbytes), "an empty sum is +0"


def test_a_weighted_sum_passes_on_what_is_infinite(kernel: Kernel) -> None:
    block = [np.array([np.inf, np.inf, 1.0], np.float32), np.array([1.0, -np.inf, np.nan], np.float32)]
    out_C = np.empty(3, np.float32)
    kernel.weighted_sum(block, np.array([0.5, 0.5]), out_C)
    assert out_C[0] == np.inf
    assert np.isnan(out_C[1:]).all()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 127, 128, 1500, 2999])
def test_a_value_that_is_not_finite_is_seen(kernel: Kernel, bad: float, column: int) -> None:
    block, _ = draw(6, 3000)
    out_C = np.empty(3000, np.float32)
    block[0][0] = np.finfo(np.float32).max
    assert kernel.finite(block).all()
    assert kernel.middle(block, middle_network(6, 2), out_C)
    assert kernel.closest(block, sorting_network(6), 4, out_C)
    block[4][column] = bad
    assert kernel.finite(block).tolist() == [True] * 4 + [False, True]
    assert not kernel.middle(block, middle_network(6, 2), out_C)
    assert not kernel.closest(block, sorting_network(6), 4, out_C)


def test_zeros_give_a_positive_zero(kernel: Kernel) -> None:
    block = [np.full(40, -0.0, np.float32) for _ in range(4)]
    for _, computed in results(kernel, block, np.ones(4)):
        assert set(computed) <= {0, 1}, "nothing but +0 and truth"


def test_numpy_takes_float64_rows() -> None:
    block = [np.array([2.0**53, 1.0]), np.array([2.0**53 + 2, 1.0]), np.array([2.0**53 + 4, 7.0])]
    out_C = np.empty(2)
    assert NUMPY.middle(block, middle_network(3, 1), out_C)
    assert out_C.tolist() == [2.0**53 + 2, 1.0]
    assert NUMPY.closest(block, sorting_network(3), 2, out_C)
    assert out_C.tolist() == [2.0**53 + 1, 1.0]
    NUMPY.weighted_sum(block, np.array([0.0, 1.0, 0.0]), out_C)
    assert out_C.tolist() == [2.0**53 + 2, 1.0]


def test_what_does_not_fit_is_refused_before_memory_is_touched(shipped: Path) -> None:
    kernel = CompiledKernel.load(shipped)
    block, weights_N = draw(4, 100)
    out_C = np.empty(100, np.float32)
    with pytest.raises(ValueError, match="expected 99 columns"):
        kernel.weighted_sum(block, weights_N, out_C[:99])
    with pytest.raises(ValueError, match="expected 100 columns"):
        kernel.finite([*block, block[0][:50]])
    with pytest.raises(ValueError, match="a network of 5 lines cannot order 4 rows"):
        kernel.middle(block, middle_network(5, 2), out_C)
    with pytest.raises(ValueError, match="the 5 closest of 4"):
        kernel.closest(block, sorting_network(4), 5, out_C)
    with pytest.raises(ValueError, match="expected contiguous float32"):
        kernel.middle(block, middle_network(4, 1), out_C.astype(np.float64))
    with pytest.raises(ValueError, match="expected contiguous float32"):
        kernel.middle(block, middle_network(4, 1), np.empty(200, np.float32)[::2])
    with pytest.raises(ValueError, match="expected contiguous float64"):
        kernel.squared_distances(block, np.zeros((4, 4)))


def test_no_memory_is_an_error_and_no_crash(compile_c: Compile, tmp_path: Path) -> None:
    none = tmp_path / "none.c"
    none.write_text("void *__wrap_aligned_alloc(void); void *__wrap_aligned_alloc(void) { return 0; }")
    kernel = CompiledKernel.load(compile_c(SOURCE, none, flags=["-DONE_VARIANT", "-Wl,--wrap=aligned_alloc"]))
    block, _ = draw(4, 100)
    out_C = np.empty(100, np.float32)
    with pytest.raises(MemoryError):
        kernel.squared_distances(block, np.zeros((5, 5)))
    with pytest.raises(MemoryError):
        kernel.middle(block, middle_network(4, 1), out_C)
    with pytest.raises(MemoryError):
        kernel.closest(block, sorting_network(4), 2, out_C)


@pytest.mark.parametrize(
    "source", ["", "int foedus_version(void) { return 2; }", "int foedus_version(void) { return 99; }"]
)
def test_a_file_that_is_stale_is_refused(compile_c: Compile, tmp_path: Path, source: str) -> None:
    (tmp_path / "stale.c").write_text(source + "\nint something;\n")
    with pytest.raises(ImportError, match=r"kernels\.so"):
        CompiledKernel.load(compile_c(tmp_path / "stale.c", flags=[]))


def test_a_file_of_another_version_is_refused(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foedus.aggregators.kernel_compiled.VERSION", 0)
    with pytest.raises(ImportError, match="is version 2, expected 0"):
        CompiledKernel.load(shipped)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path | None], Kernel]]:
    """Chooses the kernel as if ``path`` had been built at install."""
    load = CompiledKernel.load

    def choose(path: Path | None) -> Kernel:
        def loaded() -> CompiledKernel:
            if path is None:
                raise ModuleNotFoundError
            return load(path)

        monkeypatch.setattr(CompiledKernel, "load", loaded)
        return best_kernel()

    best_kernel.cache_clear()
    yield choose
    best_kernel.cache_clear()


def test_the_compiled_kernel_is_chosen(built, shipped: Path) -> None:
    kernel = built(shipped)
    assert isinstance(kernel, CompiledKernel)
    assert kernel.name.startswith("compiled (")
    assert best_kernel() is kernel


def test_a_broken_file_leaves_numpy_and_a_line_in_the_log(built, tmp_path: Path, caplog) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF and no more")
    with caplog.at_level(logging.WARNING, "foedus"):
        assert built(tmp_path / "broken.so").name == "numpy"
    (record,) = caplog.records
    assert record.getMessage() == "compiled_kernel_refused"
    assert "broken.so" in record.fields["reason"]


def test_numpy_runs_where_nothing_was_built(built, caplog) -> None:
    assert built(None).name == "numpy"
    assert not caplog.records


def test_an_installation_with_a_compiler_builds_the_kernel(compiler: str) -> None:
    assert isinstance(CompiledKernel.load().library, ctypes.CDLL)


def test_another_process_takes_the_best_kernel_that_it_has(shipped: Path) -> None:
    kernel = CompiledKernel.load(shipped)
    assert pickle.loads(pickle.dumps(kernel)) is best_kernel()  # noqa: S301
    assert pickle.loads(pickle.dumps(NUMPY)) == NUMPY  # noqa: S301
