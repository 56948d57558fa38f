"""A site's secret from shares, of which some may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice

from ..secrets import Secret
from .shamir import combine, outliers

MAX_TRIES = 4096


def recover(
    shares: Mapping[int, Secret], threshold: int, is_right: Callable[[Secret], bool], distrusted: frozenset[int]
) -> tuple[Secret, frozenset[int]] | None:
    """The secret that ``is_right``, and at which x a share is wrong; None if no subset that was tried gives it.

    A subset that leaves one share out comes before those that leave out two, so that few liars are soon found
    however many holders there are; ``distrusted`` ones, who lied before, come last.
    """
    places = sorted(shares, key=lambda x: (x in distrusted, x))
    for chosen in islice(_subsets(places, threshold), MAX_TRIES):
        good = {x: shares[x] for x in chosen}
        secret = combine(good)
        if secret is not None and is_right(secret):
            return secret, outliers(good, shares)
    return None


def _subsets(places: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Every subset of ``size`` once, those of the first places first."""
    for last in range(size - 1, len(places)):
        for others in combinations(places[:last], size - 1):
            yield (*others, places[last])
