"""Who lies, where a dealer and a holder contradict each other: a site against a site, and no secret is shown to tell.

A holder could prove itself by showing what it was dealt. But the server alone says that there is a contradiction, and
T + 1 holders who believed it would have shown a sketch. So nothing is shown, and both sites are left out of the round:
at least one of them lies, and each liar takes at most one honest site with it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whom to leave out.

    Attributes:
        liars: sites that lie for certain, if no more than E do.
        pairs: two sites each, no site twice, of which at least one lies.
    """

    liars: frozenset[bytes]
    pairs: tuple[tuple[bytes, bytes], ...]

    @property
    def out(self) -> frozenset[bytes]:
        """All of them."""
        return self.liars | {site for pair in self.pairs for site in pair}

    @property
    def num_liars(self) -> int:
        """How many of them lie at least."""
        return len(self.liars) + len(self.pairs)


def settle(liars: Collection[bytes], contradictions: Collection[tuple[bytes, bytes]], most: int) -> Outcome:
    """Settle contradictions between two sites of which one lies.

    Who is contradicted by more sites than can lie, lies itself. What is left is matched: taken in order, two sites at
    a time. No contradiction remains between sites that are both left in.

    Args:
        liars: sites found to lie by other means.
        contradictions: pairs of a dealer and a holder; a site that contradicts itself lies.
        most: E, so many sites may lie.
    """
    sure = set(liars) | {dealer for dealer, holder in contradictions if dealer == holder}
    while True:
        left = sorted(pair for pair in contradictions if not sure & set(pair))
        against: dict[bytes, set[bytes]] = {}
        for one, other in left:
            against.setdefault(one, set()).add(other)
            against.setdefault(other, set()).add(one)
        found = {site for site, others in against.items() if len(others) > most - len(sure)}
        if not found or len(sure) > most:
            break
        sure |= found
    pairs: list[tuple[bytes, bytes]] = []
    matched: set[bytes] = set()
    for pair in left:
        if not matched & set(pair):
            pairs.append(pair)
            matched |= set(pair)
    return Outcome(frozenset(sure), tuple(pairs))
