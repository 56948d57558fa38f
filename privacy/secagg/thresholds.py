"""How many must answer: the inequalities that keep a server from opening more than one sum, in whole numbers.

n sites take part, of whom c may collude with the server; each has m holders of its shares, itself among them.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

from .graph import is_complete

TAIL_BITS = 80  # a server can try many orders of the ring, so the bounds hold for all but 2^-80 of them
LIVENESS_BITS = 20


def majority(num_sites: int, colluders: int) -> int:
    """⌊(n + c)/2⌋ + 1: two sets of that size share a site that does not collude, which answers for one of them only."""
    return (num_sites + colluders) // 2 + 1


def share_threshold(num_sites: int, colluders: int, degree: int) -> int:
    """t: shares that recover a secret.

    Complete graph: ``majority`` of all. Ring of k neighbours, m = k + 1 holders:

    - 2t > m + c_m, or else two halves of the holders, shown two lists, give away both secrets of a site;
    - t >= k/2 + 2 + c_h, or else a server that drops the sites around an arc cuts it off and learns its sum.

    c_m and c_h are the most colluders among k neighbours and among k/2 in a row, but for a chance of 2^-80.
    """
    if is_complete(num_sites, degree):
        return majority(num_sites, colluders)
    among = most_colluders(num_sites, colluders, degree)
    in_a_row = most_colluders(num_sites, colluders, degree // 2)
    return max((degree + 1 + among) // 2 + 1, degree // 2 + 2 + in_a_row)


@lru_cache(maxsize=1024)
def most_colluders(num_sites: int, colluders: int, draws: int) -> int:
    """The least m with n · P(more than m of c colluders among ``draws`` of n - 1 sites) < 2^-80, exactly."""
    return most_marked(num_sites, colluders, draws, TAIL_BITS)


def most_marked(num_sites: int, marked: int, draws: int, bits: int) -> int:
    """The least m with n · P(X > m) < 2^-bits, X hypergeometric: ``marked`` among ``draws`` of n - 1."""
    others = num_sites - 1
    marked = min(marked, others)
    whole, tail = comb(others, draws), 0
    for m in range(min(marked, draws), 0, -1):
        tail += comb(marked, m) * comb(others - marked, draws - m)
        if (num_sites * tail) << bits >= whole:
            return m
    return 0


def ring_degree(num_sites: int, colluders: int, dropouts: int) -> int:
    """The least even k that is safe, and live but for a chance of 2^-20; 0 where everybody must be a neighbour."""
    for degree in range(8, num_sites - 1, 2):
        threshold = share_threshold(num_sites, colluders, degree)
        if threshold <= degree and most_marked(num_sites, dropouts, degree, LIVENESS_BITS) <= degree + 1 - threshold:
            return degree
    return 0
