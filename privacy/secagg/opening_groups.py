"""From the shares revealed in every group to a sum for each that can be opened.

Shape suffixes: D coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...errors import SecureSumFailed
from .codes import Refusal, refusal_of
from .collect_groups import GroupCollection, require_groups
from .opening import Opening, SecureSum, add_up, open_sum
from .prg import Words


@dataclass(frozen=True, slots=True)
class GroupOpenings:
    """What is known of every group once the last phase is over.

    Attributes:
        opened: the masks that are left in each group's sum, by the group's number.
        lost: why there is no sum of the other groups.
    """

    opened: Mapping[int, Opening]
    lost: Mapping[int, Refusal]


def open_groups(collection: GroupCollection) -> GroupOpenings:
    """Recover the secrets that are needed, group by group; a group where that fails is lost, and named.

    Raises:
        SecureSumFailed: "too-few" groups can be opened: fewer than 2f + 1.
    """
    opened: dict[int, Opening] = {}
    lost = dict(collection.lost)
    for place, group in collection.left.items():
        try:
            opened[place] = open_sum(group)
        except SecureSumFailed as error:
            lost[place] = refusal_of(error)
    require_groups(collection.descriptor, opened, lost)
    return GroupOpenings(opened, lost)


def add_up_groups(
    collection: GroupCollection, openings: GroupOpenings, words_D: Callable[[bytes], Words]
) -> Iterator[tuple[int, SecureSum]]:
    """Each group's number and its sum, one after another: the inputs of a rule are their means.

    Args:
        collection: the session.
        openings: from ``open_groups``.
        words_D: a survivor's masked words; asked for once each.

    Raises:
        SecureSumFailed: "bad-list": the words are not of the session's length and type.
    """
    for place, opening in openings.opened.items():
        rows = ((site, words_D(site)) for site in opening.survivors)
        yield place, add_up(collection.groups[place].descriptor, opening, rows)
