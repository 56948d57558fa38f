"""The angles under which the origin sees the updates, as far as distances tell.

Shape suffixes: V = N + R rows, the points without the origin.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .geometry import Geometry
from .reach import REACH


def cosines(geometry: Geometry) -> npt.NDArray[np.float64]:
    """cos(x_i, x_j) of every pair of updates and reference rows: float64, within [-1, 1].

    It is 0 where there is no direction to compare: a row of norm 0 or infinity, or two rows of
    which one is more than 1e5 times as long as the other. Of such a pair the distances hold the
    longer one alone, and what they say of the angle is rounding, which a liar could steer.
    """
    squared_V = geometry.squared_PP[:-1, -1]
    norms_V = np.sqrt(squared_V)
    has_direction_V = (norms_V > 0) & np.isfinite(norms_V)
    comparable_VV = norms_V[:, None] <= REACH * norms_V[None, :]
    seen_VV = comparable_VV & comparable_VV.T & has_direction_V[:, None] & has_direction_V[None, :]
    first, second = np.nonzero(seen_VV)
    products = (squared_V[first] + squared_V[second] - geometry.squared_PP[first, second]) / 2
    cosines_VV = np.zeros(seen_VV.shape)
    cosines_VV[first, second] = np.clip(products / (norms_V[first] * norms_V[second]), -1, 1)
    return cosines_VV
