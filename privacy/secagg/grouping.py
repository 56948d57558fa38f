"""Groups of sites that are summed apart: how many, how large, and how many in one may collude; in whole numbers.

n sites are cut into groups of at least g. f of the n may send any update, c may collude with the server.
"""

from __future__ import annotations

from collections.abc import Sequence

from .thresholds import majority, most_colluders, share_threshold


def num_groups(num_sites: int, group_size: int) -> int:
    """⌊n/g⌋: so many sums a rule is given, if no group is lost."""
    return num_sites // group_size


def group_sizes(num_sites: int, group_size: int) -> tuple[int, ...]:
    """The groups' sizes, the larger ones first: what is left over is spread, one site to a group."""
    least, more = divmod(num_sites, num_groups(num_sites, group_size))
    return tuple(least + (place < more) for place in range(num_groups(num_sites, group_size)))


def cut(order: Sequence[bytes], group_size: int) -> tuple[tuple[bytes, ...], ...]:
    """Sites in an order, cut into groups from its start; each group sorted."""
    groups, start = [], 0
    for size in group_sizes(len(order), group_size):
        groups.append(tuple(sorted(order[start : start + size])))
        start += size
    return tuple(groups)


def fewest_groups(byzantine: int) -> int:
    """2f + 1: f attackers spoil up to f groups, and no rule withstands as many spoilt inputs as good ones."""
    return 2 * byzantine + 1


def colluders_in_group(num_sites: int, colluders: int, group_size: int) -> int:
    """The most of c colluders that are in a group with an honest site, but for a chance of 2^-80.

    For all of n honest sites at once, and for groups drawn at random. Among few sites that is all of them: what can
    happen at all, a server can bring about by trying names for a run.
    """
    return most_colluders(num_sites, colluders, max(group_sizes(num_sites, group_size)) - 1)


def group_threshold(num_sites: int, colluders: int, degree: int, group_size: int) -> int:
    """t within the smallest group, if all its sites send keys."""
    among = colluders_in_group(num_sites, colluders, group_size)
    return share_threshold(min(group_sizes(num_sites, group_size)), among, degree)


def fewest_in_group(num_sites: int, group_size: int, colluders: int, *, min_sites: int = 5, min_honest: int = 3) -> int:
    """The least ``min_sites`` and ``min_survivors`` that sites with these conditions agree to, for every group."""
    among = colluders_in_group(num_sites, colluders, group_size)
    return max(min_sites, among + min_honest, -(-max(group_sizes(num_sites, group_size)) // 2))


def groups_left(
    num_sites: int, group_size: int, colluders: int, *, away: int, min_sites: int = 5, min_honest: int = 3
) -> int:
    """The fewest groups that still have a sum, whichever ``away`` of the sites a round is without."""
    among = colluders_in_group(num_sites, colluders, group_size)
    fewest = fewest_in_group(num_sites, group_size, colluders, min_sites=min_sites, min_honest=min_honest)
    left = num_groups(num_sites, group_size)
    spares = [size - max(fewest, majority(size, among)) for size in group_sizes(num_sites, group_size)]
    for spare in sorted(spares):  # the groups that are lost first are those that bear least
        away -= max(spare + 1, 0)
        left -= away >= 0
    return left


def grouping_fault(
    num_sites: int,
    group_size: int,
    *,
    byzantine: int,
    colluders: int,
    rule: str,
    away: int = 0,
    min_sites: int = 5,
    min_honest: int = 3,
) -> str | None:
    """What is wrong with cutting so many sites into such groups, in one sentence, or None.

    A rule's own condition is to be asked of the rule, with ``groups_left`` as its number of inputs.

    Args:
        num_sites: n, the participants.
        group_size: g.
        byzantine: f.
        colluders: c.
        rule: the rule's name, for the sentence.
        away: so many participants may be missing in a round.
        min_sites: fewest sites in a group.
        min_honest: fewest sites beside the colluding ones in a group.
    """
    n, g, f = num_sites, group_size, byzantine
    least = max(2, min_sites)
    if g < least:
        return f"groups of {g} sites are too small to hide an update in, expected at least {least}"
    if g > n:
        return f"{n} sites are fewer than one group of {g}"
    found = num_groups(n, g)
    what = f"groups of {g} from {n} sites are {found} group{'s' if found > 1 else ''}"
    if found < fewest_groups(f):
        size = n // fewest_groups(f)
        mend = f"make groups of at most {size}" if size >= least else f"{fewest_groups(f) * g} sites would be enough"
        spoilt = f"{f} attackers spoil up to {f} groups, and {rule} with f = {f} needs at least {fewest_groups(f)}"
        return f"{what}; {spoilt}: {mend}"
    among = colluders_in_group(n, colluders, g)
    if g - among < min_honest:
        met = f"{among} of {colluders} colluding sites may meet in one, which leaves {g - among} honest"
        return f"{what}; {met}, expected at least {min_honest}: make groups larger, or assume fewer to collude"
    left = groups_left(n, g, colluders, away=away, min_sites=min_sites, min_honest=min_honest)
    if left < fewest_groups(f):
        lost = f"with {away} away, {found - left} of them can be lost"
        return f"{what}; {lost}, and {rule} with f = {f} needs at least {fewest_groups(f)}: ask more sites"
    return None
