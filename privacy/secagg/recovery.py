"""A site's secret from shares, some of which may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from math import comb

from ..secrets import Secret
from .decoding import agreeing
from .shamir import combine, outliers

MAX_TRIES = 1024


def recover(
    shares: Mapping[int, Secret],
    threshold: int,
    is_right: Callable[[Secret], bool],
    *,
    colluders: int = 0,
    distrusted: frozenset[int] = frozenset(),
) -> tuple[Secret, frozenset[int]] | None:
    """The secret that ``is_right``, and at which x a share is wrong; None if no subset that was tried gives it.

    Tried are the first t holders, whom decoding finds to agree, and then other subsets: decoding is certain up to
    half as many liars as there are shares to spare, subsets may go beyond. ``distrusted`` holders, who lied before,
    come last.

    The right secret does not prove every share behind it right: the errors of two liars can cancel at 0. So shares
    are called wrong only once t - 1 + c agree. At least t - 1 of those are honest, and with the secret itself they
    fix the polynomial: liars cannot put the blame on somebody else. Short of that, nobody is blamed.
    """
    needed = threshold - 1 + colluders
    places = sorted(shares, key=lambda x: (x in distrusted, x))
    found = None
    for chosen in islice(_candidates(shares, places, threshold), MAX_TRIES):
        good = {x: shares[x] for x in chosen}
        secret = combine(good)
        if secret is None or not is_right(secret):
            continue
        wrong = outliers(good, shares)
        if not wrong or len(shares) - len(wrong) >= needed:
            return secret, wrong
        found = secret
        if len(shares) - 1 < needed:  # no subset will tell
            break
    return (found, frozenset()) if found else None


def surely_none(num_shares: int, threshold: int, colluders: int) -> bool:
    """Whether a ``recover`` that found nothing proves the dealer wrong: the honest holders alone would be enough."""
    spare = num_shares - threshold
    return colluders <= spare and (2 * colluders <= spare or comb(num_shares, threshold) < MAX_TRIES)


def _candidates(shares: Mapping[int, Secret], places: Sequence[int], threshold: int) -> Iterator[tuple[int, ...]]:
    subsets = _subsets(places, threshold)
    yield next(subsets)
    if found := agreeing(shares, threshold):
        yield found
    yield from subsets


def _subsets(places: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Every subset of ``size`` once, those of the first places first, so that few liars are soon left out."""
    for last in range(size - 1, len(places)):
        for others in combinations(places[:last], size - 1):
            yield (*others, places[last])
