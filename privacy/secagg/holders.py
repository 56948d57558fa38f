"""How many holders of shares may collude, vanish or lie, in whole numbers: what computing on shares asks of a session.

n sites share their vectors among themselves, K blocks of each in one polynomial. T together learn nothing, D may not
answer, E may lie, whether in what they deal or in what they answer; f of the n may send any update.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HOLDERS = 64


@dataclass(frozen=True, slots=True)
class Reserves:
    """What a session of sketches or shares holds in reserve.

    Attributes:
        privacy_threshold: T.
        dropouts: D.
        wrong_holders: E.
    """

    privacy_threshold: int
    dropouts: int
    wrong_holders: int


def answers_needed(privacy_threshold: int, wrong_holders: int, packing: int = 1) -> int:
    """2(T + K - 1) + 1 + 2E, which for one block are 2T + 1 + 2E.

    So many answers fix a product of two shares although E of them are wrong (Reed and Solomon 1960).
    """
    return 2 * (privacy_threshold + packing - 1) + 1 + 2 * wrong_holders


def usual_reserves(num_sites: int) -> Reserves:
    """A fifth may collude, up to a fourth may lie, and what is left may vanish, one site at least.

    (T, D, E) is (2, 1, 2) for 10 sites, (4, 1, 5) for 20 and (10, 5, 12) for 50.
    """
    colluding = max(1, -(-num_sites // 5))
    lying = max(0, min(num_sites // 4, (num_sites - 2 * colluding - 2) // 2))
    return Reserves(colluding, max(0, num_sites - answers_needed(colluding, lying)), lying)


def widest_packing(num_sites: int, reserves: Reserves) -> int:
    """The largest K with n >= 2(T + K - 1) + 1 + D + 2E; below 1 if there is none."""
    room = num_sites + 1 - reserves.dropouts - 2 * reserves.wrong_holders
    return room // 2 - reserves.privacy_threshold


def sharing_fault(
    num_sites: int,
    *,
    byzantine: int,
    privacy_threshold: int,
    dropouts: int,
    wrong_holders: int,
    packing: int = 1,
) -> str | None:
    """What keeps so many sites from computing on shares with these reserves, in one sentence, or None.

    Args:
        num_sites: n; the fewest that a run may have.
        byzantine: f.
        privacy_threshold: T.
        dropouts: D.
        wrong_holders: E. Whoever sends a false update may as well deal or answer falsely, so that E bounds f.
        packing: K.
    """
    n, f, t, d, e, k = num_sites, byzantine, privacy_threshold, dropouts, wrong_holders, packing
    if k < 1:
        return f"the packing K is {k}, expected at least 1: an update has that many blocks"
    if t < 1:
        return f"the privacy threshold T is {t}, expected at least 1: a single holder would have what is shared itself"
    if n > MAX_HOLDERS:
        return f"{n} sites are too many to share with one another, expected at most {MAX_HOLDERS}"
    if f > e:
        return f"f = {f} sites may lie, but only E = {e} wrong answers could be found: raise E to {f}, or lower f"
    if n < (needed := answers_needed(t, e, k) + d):
        if k == 1:
            return (
                f"n >= 2T + 1 + D + 2E does not hold: T = {t}, D = {d} and E = {e} need {needed} sites, there are {n}"
            )
        numbers = f"T = {t}, K = {k}, D = {d} and E = {e}"
        return f"n >= 2(T + K - 1) + 1 + D + 2E does not hold: {numbers} need {needed} sites, there are {n}"
    return None
