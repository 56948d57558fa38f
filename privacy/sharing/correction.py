"""What the holders' answers agree on, and who of them differs.

Shape suffixes: H holders who answered, K blocks, A polynomials side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from .decoding import wrong_rows
from .field import Elements, Stream
from .packing import Packing, at_data_points


def agreed_values(
    packing: Packing, holders: Sequence[int], answers_HA: Elements, degree: int, stream: Stream
) -> tuple[Elements, tuple[int, ...]] | None:
    """The values at the data points, K x A, of the polynomials that all but E answers lie on, and whose lie elsewhere.

    None if more than E of them are wrong.

    Args:
        packing: how the vectors were shared.
        holders: who answered, by index.
        answers_HA: a row of each.
        degree: of the polynomials.
        stream: private randomness of whoever decodes.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    packing.require_answers(len(holders))
    wrong = wrong_rows(packing.holder_points(holders), answers_HA, degree, packing.liars, stream)
    if wrong is None:
        return None
    agreed = [position for position in range(len(holders)) if position not in wrong]
    values_KA = at_data_points(packing, [holders[i] for i in agreed], answers_HA[agreed], degree)
    return values_KA, tuple(holders[i] for i in wrong)
