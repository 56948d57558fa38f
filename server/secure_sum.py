"""From a session whose shares have come to an update: the mean of those in the sum, as if one site had sent it.

Shape suffixes: D trainable values, C the columns of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..files import replacing, storing
from ..layout import Layout
from ..privacy.secagg.opening import Opening, add_up, open_sum
from ..privacy.secagg.prg import Words
from .sums import Session
from .update_file import UpdateFile

BLOCK_VALUES = 1 << 18


def opened(session: Session) -> Opening:
    """Recover what takes the masks off.

    Raises:
        SecureSumFailed: shares are missing, or do not belong together.
    """
    return open_sum(session.collection)


def mean_update(session: Session, row: Callable[[bytes], Path], layout: Layout, out: Path) -> UpdateFile:
    """Add up the masked words, take the masks off and write the mean as an update of this layout.

    Args:
        session: over.
        row: where a site's masked words are, by its id.
        layout: of the model; buffers and counters, which no sum carries, are zeros.
        out: where the update appears.

    Raises:
        SecureSumFailed: as ``opened``.
        StoreError: a file could not be read or written.
    """
    descriptor = session.descriptor

    def words(site: bytes) -> Words:
        with storing(f"reading {row(site)}"):
            return np.memmap(row(site), descriptor.ring.unsigned, "r", shape=(descriptor.num_words,))

    opening = opened(session)
    total = add_up(descriptor, opening, ((site, words(site)) for site in opening.survivors))
    divisor = total.scale * total.total_weight
    with replacing(out, durable=False) as file:
        for start in range(0, len(total.sum_D), BLOCK_VALUES):
            mean_C = total.sum_D[start : start + BLOCK_VALUES] / divisor
            file.write(mean_C.astype("<f4").data)
        file.write(bytes(layout.update_bytes - 4 * layout.num_trainable))
    return UpdateFile.open(out, layout)
