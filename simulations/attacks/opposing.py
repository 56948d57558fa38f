"""Attacks that push against the honest direction."""

from __future__ import annotations

from .knowledge import Knowledge, Reals


def sign_flip(known: Knowledge) -> Reals:
    """-x, the attackers' own update reversed; -μ where they trained none.

    Aims at the mean: f of n such updates shrink its step to (1 - 2f/n) of what it was (Li et al.
    2019, "RSA").
    """
    return -(known.mean if known.own_D is None else known.own_D)


def inner_product_manipulation(known: Knowledge, *, epsilon: float = 0.1) -> Reals:
    """-ε μ (Xie, Koyejo and Gupta 2020, "Fall of Empires").

    Makes the inner product of the aggregate with the honest mean negative. With a small ε the row
    is near the origin, thus near everyone, and Krum and the medians take it where the honest
    updates are scattered; the mean is reversed only by ε > (n - f) / f.
    """
    return -epsilon * known.mean
