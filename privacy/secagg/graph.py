"""Who masks with whom, and who holds whose shares: all with all up to 256 sites, a ring above (Bell et al. 2020)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ..secrets import Secret
from .keys import PROTOCOL
from .prg import Keystream, piece_buffer

COMPLETE_UP_TO = 256
_DRAWN_BYTES = 4096


def is_complete(num_sites: int, degree: int) -> bool:
    """Whether every two of so many sites are neighbours: few sites, no degree, or one that leaves nobody out."""
    return num_sites <= COMPLETE_UP_TO or degree == 0 or degree >= num_sites - 1


def num_holders(num_sites: int, degree: int) -> int:
    """m: how many hold shares of one site, itself among them."""
    return num_sites if is_complete(num_sites, degree) else degree + 1


@dataclass(frozen=True, slots=True)
class Graph:
    """The neighbours of each site.

    Attributes:
        order: the sites around the ring.
        degree: neighbours of each, half on either side; 0 for all.
    """

    order: tuple[bytes, ...]
    degree: int

    def neighbours(self, site: bytes) -> tuple[bytes, ...]:
        """The sites that ``site`` masks with, sorted, without itself."""
        if self.degree == 0:
            return tuple(sorted(set(self.order) - {site}))
        at, n = self.order.index(site), len(self.order)
        steps = range(1, self.degree // 2 + 1)
        return tuple(sorted({self.order[(at + sign * step) % n] for step in steps for sign in (1, -1)} - {site}))

    def holders(self, site: bytes) -> tuple[bytes, ...]:
        """The sites that hold shares of ``site``, itself among them, sorted: the rank from 1 is the share's x."""
        return tuple(sorted((*self.neighbours(site), site)))


def graph_of(sites: Sequence[bytes], sid: bytes, key_bodies: Sequence[bytes], degree: int) -> Graph:
    """The graph that everybody finds who has seen the same keys.

    Args:
        sites: the ids, sorted.
        key_bodies: the body of each one's Keys message, in the same order; no site chooses its place, since
            its own keys are but a part of what the order hangs on.
    """
    if is_complete(len(sites), degree):
        return Graph(tuple(sites), 0)
    seed = hashlib.sha256(PROTOCOL + b"graph" + sid + b"".join(key_bodies)).digest()
    return Graph(shuffled(sites, seed), degree)


def shuffled(sites: Sequence[bytes], seed: bytes) -> tuple[bytes, ...]:
    """Fisher-Yates from the last place down; a draw is a 32-bit little-endian word, drawn again where it is uneven."""
    buffer, stream = piece_buffer(), Keystream(Secret(seed))
    order, words = list(sites), iter(tuple[int, ...]())
    for last in range(len(order) - 1, 0, -1):
        limit = 2**32 - 2**32 % (last + 1)
        while True:
            word = next(words, None)
            if word is None:
                stream.into(buffer, _DRAWN_BYTES)
                words = iter(buffer[:_DRAWN_BYTES].view("<u4").tolist())
            elif word < limit:
                break
        place = word % (last + 1)
        order[last], order[place] = order[place], order[last]
    return tuple(order)
