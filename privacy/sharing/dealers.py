"""Which dealers dealt wrongly: shares of too high a degree, masks that do not add up to 0, bits that are none.

Every test is one field element from each holder for each dealer: the share of a random public combination of what
the dealer dealt, hidden by a mask that the dealer dealt for the purpose.

Shape suffixes: N dealers, H holders who answered, L columns of a block, B bits, A masks of a dealer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .decoding import wrong_by_column
from .field import Elements, Stream, add, inner_products, total, uniform
from .packing import Packing, at_data_points


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a test says of the dealers.

    Attributes:
        bad: dealers for whom no honest dealing gives these answers.
        disputes: (dealer, holder), where the others' answers agree without this holder's: either the holder lies, or
            the dealer sent it something else than the others. What the dealer sent must be shown to say which.
    """

    bad: tuple[int, ...]
    disputes: tuple[tuple[int, int], ...]


def degree_answers(shares_NL: Elements, bits_NB: Elements, masks_N: Elements, stream: Stream) -> Elements:
    """What a holder answers for each dealer's degree test: ⟨ρ, (share, bits)⟩ + mask, ρ from the public ``stream``.

    Args:
        bits_NB: shares of bits, with no column where none were dealt.
        masks_N: the holder's shares of ``degree_masks``, one from each dealer.
    """
    return add(add(_combined(shares_NL, stream), _combined(bits_NB, stream)), masks_N)


def mask_answers(masks_NA: Elements, hiding_N: Elements, stream: Stream) -> Elements:
    """What a holder answers for each dealer's masks: ⟨ρ, masks⟩ + hiding mask, ρ from the public ``stream``.

    Args:
        hiding_N: the holder's shares of one more of ``zero_sum_masks`` from each dealer.
    """
    return add(_combined(masks_NA, stream), hiding_N)


def judge_degrees(packing: Packing, holders: Sequence[int], answers_HN: Elements) -> Judgement:
    """Whether what each dealer dealt has the degree of a share.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    return _judged(packing, holders, answers_HN, packing.degree, lambda values_KN: values_KN[:0])


def judge_shortness(packing: Packing, holders: Sequence[int], answers_HN: Elements) -> Judgement:
    """Whether the polynomial of ``shortness_answers`` vanishes at the data points, for each dealer.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    return _judged(packing, holders, answers_HN, packing.product_degree, lambda values_KN: values_KN)


def judge_masks(packing: Packing, holders: Sequence[int], answers_HN: Elements) -> Judgement:
    """Whether each dealer's masks add up to 0 over the data points.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    return _judged(packing, holders, answers_HN, packing.product_degree, lambda values_KN: total(values_KN)[None])


def _combined(rows_NC: Elements, stream: Stream) -> Elements:
    """Of each row the combination by the next elements of the stream."""
    return inner_products(rows_NC, uniform(stream, 1, rows_NC.shape[1])).reshape(-1)


def _judged(
    packing: Packing,
    holders: Sequence[int],
    answers_HN: Elements,
    degree: int,
    zero: Callable[[Elements], Elements],
) -> Judgement:
    """Bad are dealers whose answers are undecodable, or for whom what ``zero`` makes of the K x N values is not 0."""
    packing.require_answers(len(holders))
    decoded = wrong_by_column(packing.holder_points(holders), answers_HN, degree, packing.liars)
    bad = {dealer for dealer, wrong in enumerate(decoded) if wrong is None}
    disputes = [(dealer, holders[i]) for dealer, wrong in enumerate(decoded) for i in wrong or ()]
    for wrong in set(decoded):
        if wrong is None:
            continue
        dealers = [dealer for dealer, its_wrong in enumerate(decoded) if its_wrong == wrong]
        agreed = [i for i in range(len(holders)) if i not in wrong]
        values_KN = at_data_points(packing, [holders[i] for i in agreed], answers_HN[np.ix_(agreed, dealers)], degree)
        bad.update(np.array(dealers)[zero(values_KN).any(axis=0)].tolist())
    return Judgement(tuple(sorted(bad)), tuple(disputes))
