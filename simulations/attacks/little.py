"""A small step aside, hidden in the spread of the honest updates (Baruch, Baruch and Goldberg 2019)."""

from __future__ import annotations

from statistics import NormalDist

from ...errors import ConfigError
from .knowledge import Knowledge, Reals


def z_max(n: int, f: int) -> float:
    """How many standard deviations f attackers among n may step aside.

    s = ⌊n/2⌋ + 1 - f honest updates must be won over for a majority, and z = Φ⁻¹((n - f - s) / (n - f))
    is where s of the n - f lie beyond. Not positive for few attackers (n = 10, f <= 2): there is no
    room to attack then, and a z of one's own choice is only a larger step.

    Raises:
        ConfigError: the attackers have a majority, or there are fewer than 3 updates.
    """
    s = n // 2 + 1 - f
    if n < 3 or f < 0 or s < 1:
        raise ConfigError(
            f"z_max is not defined for {f} attackers among {n} updates, expected 3 updates and a majority of honest",
            hint="set z",
        )
    return NormalDist().inv_cdf((n - f - s) / (n - f))


def a_little_is_enough(known: Knowledge, *, z: float | None = None, ddof: int = 0) -> Reals:
    """μ - z σ per parameter, with z = ``z_max`` unless given (ALIE).

    Aims at the coordinate rules and at Krum: the row lies within the honest spread, nearer to the
    mean than many honest ones. ``ddof`` is 0 for the population's σ, as in the authors' code, 1 for
    the sample's.

    Raises:
        ConfigError: z is not given and ``z_max`` is not defined.
    """
    return known.mean - (z_max(known.n, known.num_attackers) if z is None else z) * known.std(ddof)
