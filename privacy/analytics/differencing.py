"""Whether exact sums over different sites, taken together, give away a few of them.

The same question over the same data, once with a site and once without: the difference is that site's answer. So is
any combination of several sums in which almost all sites cancel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from fractions import Fraction

Cohort = frozenset[bytes]


def differencing_fault(cohort: Cohort, answered: Collection[Cohort], fewest: int = 3) -> str:
    """Why a sum over ``cohort`` must not be opened after sums over ``answered``; "" if it may.

    No two may differ by fewer than ``fewest`` sites (those of either that are not in the other), and no combination
    of all of them may be of one or two sites alone. Cohorts are compared whatever was asked: every answer holds a
    number of records. The same cohort again is no difference. With noise, nothing needs to be refused.

    Args:
        cohort: the sites in the sum.
        answered: those of earlier sums without noise that were or may have been opened.
        fewest: 3, or more where some of the sites that differ may collude with the server.
    """
    if cohort in answered:
        return ""
    for before in answered:
        if (count := len(cohort ^ before)) < fewest:
            return (
                f"the {len(cohort)} sites differ by {count} from {len(before)} that were answered before, expected at "
                f"least {fewest}: the difference of the answers would be theirs"
            )
    if isolates([*answered, cohort]):
        return f"together with {len(answered)} answers before, one over these {len(cohort)} sites tells of one or two"
    return ""


def isolates(cohorts: Collection[Cohort]) -> bool:
    """Whether some combination of the sums over these cohorts is one of fewer than three sites.

    Sites that were always asked together count as one, with a size. A vector is a combination of the rows of a matrix
    if it is orthogonal to the matrix's kernel; so one of a single site needs a site whose entries in a basis of the
    kernel are all 0, and one of two sites a pair whose entries are in proportion.
    """
    sites = frozenset[bytes]().union(*cohorts)
    sizes = Counter(tuple(int(site in cohort) for cohort in cohorts) for site in sites)
    columns = list(sizes)
    directions = []
    for column, entries in zip(columns, _kernel_entries(columns), strict=True):
        leading = next((entry for entry in entries if entry), None)
        if leading is None:
            if sizes[column] < 3:
                return True
        elif sizes[column] == 1:
            directions.append(tuple(entry / leading for entry in entries))
    return len(set(directions)) < len(directions)


def _kernel_entries(columns: list[tuple[int, ...]]) -> Iterable[list[Fraction]]:
    """For each column of a matrix, its entries in a basis of the matrix's kernel."""
    rows, pivots = _reduced([[Fraction(entry) for entry in row] for row in zip(*columns, strict=True)])
    free = [place for place in range(len(columns)) if place not in pivots]
    for place in range(len(columns)):
        if place in pivots:
            yield [-rows[pivots.index(place)][other] for other in free]
        else:
            yield [Fraction(place == other) for other in free]


def _reduced(rows: list[list[Fraction]]) -> tuple[list[list[Fraction]], list[int]]:
    """Gauss-Jordan: the rows with a leading 1, reduced, and the places of these."""
    done: list[list[Fraction]] = []
    pivots: list[int] = []
    for row in rows:
        for other, pivot in zip(done, pivots, strict=True):
            if factor := row[pivot]:
                row = [mine - factor * theirs for mine, theirs in zip(row, other, strict=True)]
        pivot = next((place for place, entry in enumerate(row) if entry), -1)
        if pivot < 0:
            continue
        row = [entry / row[pivot] for entry in row]
        done = [[mine - other[pivot] * new for mine, new in zip(other, row, strict=True)] for other in done]
        done.append(row)
        pivots.append(pivot)
    return done, pivots
