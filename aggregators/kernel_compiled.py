"""The inner loops compiled from kernels.c, where that could be done when foedus was installed.

Shape suffixes: N rows, C the columns of a block, P = N + 1 points, the last the origin.
"""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes import byref, c_char_p, c_int, c_ssize_t, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .network import Network
from .rows import Block

# What kernels.c calls VERSION: raised with every change of a function's parameters or results.
VERSION = 2

_ROWS = (c_void_p, c_int, c_ssize_t)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "foedus_variant": (c_char_p, ()),
    "foedus_squared_distances": (c_int, (*_ROWS, c_void_p)),
    "foedus_weighted_sum": (None, (*_ROWS, c_void_p, c_void_p)),
    "foedus_middle": (c_int, (*_ROWS, c_void_p, c_ssize_t, c_void_p, c_int, c_void_p, c_void_p)),
    "foedus_closest": (c_int, (*_ROWS, c_void_p, c_ssize_t, c_void_p, c_int, c_void_p, c_void_p)),
    "foedus_finite": (None, (*_ROWS, c_void_p)),
}


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """``Kernel`` in C, called without the interpreter's lock.

    Attributes:
        library: the loaded functions of kernels.c.
    """

    library: ctypes.CDLL

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """The functions in ``path``, or in the file that was built at install.

        Raises:
            ModuleNotFoundError: nothing was built.
            ImportError: the file cannot be loaded, or is not of this version.
        """
        path = path or _built()
        try:
            library = ctypes.CDLL(str(path))
            version = library.foedus_version()
            for name, (result, parameters) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, parameters
        except (OSError, AttributeError) as error:
            raise ImportError(f"{path} cannot be used: {error}") from None
        if version != VERSION:
            raise ImportError(f"{path} is version {version}, expected {VERSION}")
        return cls(library)

    def __reduce__(self) -> tuple[Any, ...]:
        from .kernel_choice import best_kernel

        return best_kernel, ()  # functions stay in their process: another one takes the best that it has

    @property
    def name(self) -> str:
        """With the variant that this processor runs, such as "compiled (avx2)"."""
        return f"compiled ({self.library.foedus_variant().decode()})"

    def squared_distances(self, block: Block, sums_PP: npt.NDArray[np.float64]) -> None:
        """As ``Kernel.squared_distances``, with ``sums_PP`` symmetric."""
        rows = _contiguous(block, block[0].size if block else 0)
        sums = _address(sums_PP, np.float64, (len(rows) + 1, len(rows) + 1))
        _check(self.library.foedus_squared_distances(*_pointers(rows), sums))

    def weighted_sum(self, block: Block, weights_N: npt.NDArray[np.float64], out_C: npt.NDArray[np.float32]) -> None:
        """As ``Kernel.weighted_sum``."""
        read = np.flatnonzero(weights_N).tolist()
        rows = _contiguous([block[row] for row in read], out_C.size)
        weights = np.ascontiguousarray(weights_N[read], np.float64)
        addresses, num_rows, _ = _pointers(rows)
        out = _address(out_C, np.float32, out_C.shape)
        self.library.foedus_weighted_sum(addresses, num_rows, out_C.size, weights.ctypes.data, out)

    def middle(self, block: Block, network: Network, out_C: npt.NDArray[np.float32]) -> bool:
        """As ``Kernel.middle``."""
        rows = _contiguous(block, out_C.size)
        return self._combine(self.library.foedus_middle, rows, network, len(network.kept), out_C)

    def closest(self, block: Block, network: Network, count: int, out_C: npt.NDArray[np.float32]) -> bool:
        """As ``Kernel.closest``."""
        rows = _contiguous(block, out_C.size)
        if not 1 <= count <= len(rows):
            raise ValueError(f"the {count} closest of {len(rows)} values were asked for")
        return self._combine(self.library.foedus_closest, rows, network, count, out_C)

    def _combine(
        self, function: Any, rows: list[npt.NDArray[np.float32]], network: Network, count: int, out_C: npt.NDArray[Any]
    ) -> bool:
        runs, kept = _packed(network, len(rows))
        out, finite = _address(out_C, np.float32, out_C.shape), c_int()
        _check(function(*_pointers(rows), runs.ctypes.data, len(runs), kept.ctypes.data, count, out, byref(finite)))
        return bool(finite)

    def finite(self, block: Block) -> npt.NDArray[np.bool_]:
        """As ``Kernel.finite``."""
        rows = _contiguous(block, block[0].size if block else 0)
        finite_N = np.empty(len(rows), np.bool_)
        self.library.foedus_finite(*_pointers(rows), finite_N.ctypes.data)
        return finite_N


def _built() -> Path:
    """The file that was built at install.

    Raises:
        ModuleNotFoundError: there is none.
    """
    spec = importlib.util.find_spec("._kernels", __package__)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("no compiled kernel was built when foedus was installed")
    return Path(spec.origin)


# The C functions trust what they are given, so that everything is looked at here.


def _contiguous(block: Block, columns: int) -> list[npt.NDArray[np.float32]]:
    rows = [np.ascontiguousarray(row_C, np.float32) for row_C in block]
    for row_C in rows:
        if row_C.shape != (columns,):
            raise ValueError(f"a row has shape {row_C.shape}, expected {columns} columns")
    return rows


def _pointers(rows: list[npt.NDArray[np.float32]]) -> tuple[ctypes.Array[c_void_p], int, int]:
    """The first three arguments of most functions; valid as long as the rows are."""
    addresses = (c_void_p * len(rows))(*(row_C.ctypes.data for row_C in rows))
    return addresses, len(rows), rows[0].size if rows else 0


def _address(array: npt.NDArray[Any], dtype: type, shape: tuple[int, ...]) -> int:
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(
            f"the result would be {array.dtype} {array.shape}, expected contiguous {dtype.__name__} {shape}"
        )
    return int(array.ctypes.data)


@lru_cache(maxsize=64)
def _packed(network: Network, num_rows: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The network's runs and kept lines as C reads them."""
    if network.num_lines != num_rows:
        raise ValueError(f"a network of {network.num_lines} lines cannot order {num_rows} rows")
    return np.array(network.runs, np.int32).reshape(-1, 3), np.array(network.kept, np.int32)


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("there is no memory for a block of columns")
