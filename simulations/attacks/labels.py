"""Poison in the data: the update is honestly trained on labels that are not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError


def label_flip(labels_N: npt.ArrayLike, num_classes: int) -> npt.NDArray[np.int64]:
    """y → C - 1 - y for each of N examples (Tolpegin et al. 2020); twice gives the labels back.

    Hand a site's task these labels and it is an attacker; what it sends is then an ordinary update,
    and close to the honest ones where sites differ anyway.

    Args:
        labels_N: whole numbers from 0 to C - 1, of any dtype.
        num_classes: C.

    Raises:
        ConfigError: a label is no class.
    """
    given_N = np.asarray(labels_N)
    whole_N = given_N.astype(np.int64)
    wrong = (whole_N != given_N) | (whole_N < 0) | (whole_N >= num_classes)
    if wrong.any():
        raise ConfigError(f"a label is {given_N[wrong][0]}, expected a whole number from 0 to {num_classes - 1}")
    return num_classes - 1 - whole_N
