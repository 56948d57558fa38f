"""What is done to the updates before a rule looks: each is replaced by a mean of several.

The mixtures Y = W X are never made. A rule sees their distances, and its weights go back to the updates by W.

Shape suffixes: N updates, M mixtures, P points, Q points after mixing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .geometry import Geometry
from .protocols import require_count, require_updates


@dataclass(frozen=True, slots=True)
class NearestNeighbourMixing:
    """Each update becomes the mean of the n - f nearest to it, itself among them (Allouah et al. 2023, NNM).

    Of updates as near, those of the lowest index. It brings honest updates together whose sites'
    data differ, so that a rule after it, with the same f, withstands about as much as can be withstood.

    Condition: n > 2f.

    Raises:
        ConfigError: f is no whole number from 0 on.
    """

    f: int
    needs_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count("f", self.f)

    def require(self, n: int) -> None:
        """n > 2f.

        Raises:
            TooFewUpdates: it is not.
        """
        require_updates(f"nnm with f = {self.f}", n, 2 * self.f + 1, "n > 2f")

    def num_mixed(self, n: int) -> int:
        """As many mixtures as updates."""
        return n

    def mix(self, n: int, geometry: Geometry | None, seed: int) -> npt.NDArray[np.float64]:  # noqa: ARG002 (draws none)
        """W, n x n.

        Raises:
            TooFewUpdates: n <= 2f.
        """
        self.require(n)
        assert geometry is not None  # noqa: S101  (it needs distances)
        squared_NN = geometry.squared_NN.copy()
        np.fill_diagonal(squared_NN, -1)  # before its duplicates
        nearest_NK = np.argsort(squared_NN, axis=1, kind="stable")[:, : n - self.f]
        mix_NN = np.zeros((n, n))
        np.put_along_axis(mix_NN, nearest_NK, 1 / (n - self.f), axis=1)
        return mix_NN


@dataclass(frozen=True, slots=True)
class Bucketing:
    """The means of buckets of ``size`` updates, drawn at random (Karimireddy, He & Jaggi 2022, algorithm 1).

    The last bucket may be smaller. It narrows the spread of honest updates whose sites' data
    differ, and costs liars nothing: one of them spoils a bucket, so that the rule after it must
    withstand as many among ⌈n / size⌉.

    Raises:
        ConfigError: ``size`` is no whole number from 1 on.
    """

    size: int = 2
    needs_distances: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_count("the size of a bucket", self.size, at_least=1)

    def require(self, n: int) -> None:
        """n >= 1.

        Raises:
            TooFewUpdates: there is no update.
        """
        require_updates("bucketing", n, 1, "an update")

    def num_mixed(self, n: int) -> int:
        """⌈n / size⌉."""
        return -(-n // self.size)

    def mix(self, n: int, geometry: Geometry | None, seed: int) -> npt.NDArray[np.float64]:  # noqa: ARG002 (looks at none)
        """W, ⌈n / size⌉ x n.

        Raises:
            TooFewUpdates: there is no update.
        """
        self.require(n)
        return in_buckets(np.random.default_rng(seed).permutation(n), self.size)


def in_buckets(order_N: npt.NDArray[np.intp], size: int) -> npt.NDArray[np.float64]:
    """W of buckets of ``size``, filled with the updates in the order given."""
    starts = range(0, len(order_N), size)
    mix_MN = np.zeros((len(starts), len(order_N)))
    for bucket_N, start in zip(mix_MN, starts, strict=True):
        members = order_N[start : start + size]
        bucket_N[members] = 1 / len(members)
    return mix_MN


def mixed(geometry: Geometry, mix_MN: npt.NDArray[np.float64]) -> Geometry:
    """The geometry of the mixtures; reference rows and the origin stay as they are.

    With A = W D Wᵀ, ‖y_i - y_j‖² = A_ij - (A_ii + A_jj) / 2. An infinite distance makes the mixtures it enters
    infinitely far from all but equal mixtures, and leaves no trace where its weight is 0.
    """
    num_mixed, num_beside = len(mix_MN), geometry.num_references + 1
    mix_QP = np.zeros((num_mixed + num_beside, len(geometry.squared_PP)))
    mix_QP[:num_mixed, : geometry.num_updates] = mix_MN
    mix_QP[num_mixed:, geometry.num_updates :] = np.eye(num_beside)
    infinite_PP = np.isinf(geometry.squared_PP)
    within_QQ = mix_QP @ np.where(infinite_PP, 0, geometry.squared_PP) @ mix_QP.T
    spreads_Q = within_QQ.diagonal()
    squared_QQ = np.maximum(within_QQ - (spreads_Q[:, None] + spreads_Q[None, :]) / 2, 0)
    squared_QQ = (squared_QQ + squared_QQ.T) / 2  # a product of matrices is symmetric but for rounding
    reached_QQ = (mix_QP != 0) @ infinite_PP @ (mix_QP != 0).T
    squared_QQ[reached_QQ | reached_QQ.diagonal()[:, None] | reached_QQ.diagonal()[None, :]] = np.inf
    _, groups_Q = np.unique(mix_QP, axis=0, return_inverse=True)
    groups_Q = groups_Q.ravel()
    squared_QQ[groups_Q[:, None] == groups_Q[None, :]] = 0
    return Geometry(squared_QQ, geometry.num_references)
