"""What most rules decide by: how far the updates lie from each other and from where they started.

Shape suffixes: N updates, R reference rows, P = N + R + 1 points, the last of them the origin.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """The squared distances between N updates, R further rows and the origin.

    The origin is the model the updates started from, so that norms and inner products follow:
    ‖x_i‖² = D_i0 and ⟨x_i, x_j⟩ = (D_i0 + D_j0 - D_ij) / 2.

    Attributes:
        squared_PP: float64, symmetric, never negative, never NaN; infinite where two rows are
            finite but farther apart than float32 can square.
        num_references: R, the rows that are no update of the round: a trusted one, an earlier aggregate.
    """

    squared_PP: npt.NDArray[np.float64]
    num_references: int = 0

    @property
    def num_updates(self) -> int:
        """N."""
        return len(self.squared_PP) - self.num_references - 1

    @property
    def squared_NN(self) -> npt.NDArray[np.float64]:
        """The squared distances between the updates alone."""
        return self.squared_PP[: self.num_updates, : self.num_updates]

    @property
    def norms_N(self) -> npt.NDArray[np.float64]:
        """‖x_i‖ of each update."""
        return np.asarray(np.sqrt(self.squared_PP[: self.num_updates, -1]))

    def without(self, indices: Collection[int]) -> Geometry:
        """The geometry of the other updates."""
        gone = set(indices)
        kept = [point for point in range(len(self.squared_PP)) if point not in gone]
        return Geometry(self.squared_PP[np.ix_(kept, kept)], self.num_references)

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """The groups of two or more updates at no distance that float32 can square, by lowest index: free riders,
        or one site under several names."""
        equal_NN = self.squared_NN == 0
        groups = {tuple(np.flatnonzero(row_N).tolist()) for row_N in equal_NN}
        return tuple(sorted(group for group in groups if len(group) > 1))
