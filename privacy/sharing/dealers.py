"""Which dealers dealt wrongly: shares of too high a degree, masks that do not add up to 0, bits that are none.

Every test is one field element from each holder for each dealer: the share of a random public combination of what
the dealer dealt, hidden by a mask that the dealer dealt for the purpose.

Shape suffixes: N dealers, H holders who answered, L columns of a block, B bits, A masks of a dealer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .decoding import wrong_by_column
from .field import Elements, Stream, add, matrix_product, total, uniform
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
    answers_N = matrix_product(shares_NL, uniform(stream, shares_NL.shape[1], 1))[:, 0]
    bits_N = matrix_product(bits_NB, uniform(stream, bits_NB.shape[1], 1))[:, 0]
    return add(add(answers_N, bits_N), masks_N)


def mask_answers(masks_NA: Elements, hiding_N: Elements, stream: Stream) -> Elements:
    """What a holder answers for each dealer's masks: ⟨ρ, masks⟩ + hiding mask, ρ from the public ``stream``.

    Args:
        hiding_N: the holder's shares of one more of ``zero_sum_masks`` from each dealer.
    """
    return add(matrix_product(masks_NA, uniform(stream, masks_NA.shape[1], 1))[:, 0], hiding_N)


def judge_degrees(packing: Packing, holders: Sequence[int], answers_HN: Elements) -> Judgement:
    """Whether what each dealer dealt has the degree of a share.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    return _judged(packing, holders, answers_HN, packing.degree, lambda _: True)


def judge_shortness(packing: Packing, holders: Sequence[int], answers_HN: Elements) -> Judgement:
    """Whether the polynomial of ``shortness_answers`` vanishes at the data points, for each dealer.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    return _judged(packing, holders, answers_HN, packing.product_degree, lambda values_K1: not values_K1.any())


def judge_masks(packing: Packing, holders: Sequence[int], answers_HN: Elements) -> Judgement:
    """Whether each dealer's masks add up to 0 over the data points.

    Raises:
        QuorumNotMet: too few holders answered.
    """
    return _judged(packing, holders, answers_HN, packing.product_degree, lambda values_K1: not total(values_K1).any())


def _judged(
    packing: Packing,
    holders: Sequence[int],
    answers_HN: Elements,
    degree: int,
    passes: Callable[[Elements], bool],
) -> Judgement:
    packing.require_answers(len(holders))
    points = packing.holder_points(holders)
    bad: list[int] = []
    disputes: list[tuple[int, int]] = []
    for dealer, wrong in enumerate(wrong_by_column(points, answers_HN, degree, packing.liars)):
        if wrong is None:
            bad.append(dealer)
            continue
        disputes.extend((dealer, holders[position]) for position in wrong)
        agreed = [position for position in range(len(holders)) if position not in wrong]
        answers_H1 = answers_HN[agreed, dealer : dealer + 1]
        if not passes(at_data_points(packing, [holders[i] for i in agreed], answers_H1, degree)):
            bad.append(dealer)
    return Judgement(tuple(bad), tuple(disputes))
