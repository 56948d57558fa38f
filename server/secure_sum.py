"""From a session whose shares have come to an update: the mean of those in the sum, as if one site had sent it.

Shape suffixes: D trainable values, C the columns of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..files import replacing, storing
from ..layout import Layout
from ..privacy.secagg.collect import SumCollection
from ..privacy.secagg.opening import add_up, open_sum
from ..privacy.secagg.prg import Words
from .update_file import UpdateFile

BLOCK_VALUES = 1 << 18


def mean_update(collection: SumCollection, row: Callable[[bytes], Path], layout: Layout, out: Path) -> UpdateFile:
    """Add up the masked words, take the masks off and write the mean as an update of this layout.

    Args:
        collection: over.
        row: where a site's masked words are, by its id.
        layout: of the model; buffers and counters, which no sum carries, are zeros.
        out: where the update appears.

    Raises:
        SecureSumFailed: as ``open_sum``.
        StoreError: a file could not be read or written.
    """
    descriptor = collection.descriptor

    def words(site: bytes) -> Words:
        with storing(f"reading {row(site)}"):
            return np.memmap(row(site), descriptor.ring.unsigned, "r", shape=(descriptor.num_words,))

    opening = open_sum(collection)
    total = add_up(descriptor, opening, ((site, words(site)) for site in opening.survivors))
    divisor = total.scale * total.total_weight
    with replacing(out, durable=False) as file:
        for start in range(0, len(total.sum_D), BLOCK_VALUES):
            mean_C = total.sum_D[start : start + BLOCK_VALUES] / divisor
            file.write(mean_C.astype("<f4").data)
        file.write(bytes(layout.update_bytes - 4 * layout.num_trainable))
    return UpdateFile.open(out, layout)
