"""One round is enough to put the attackers' model in place of everyone's (Bagdasaryan et al. 2020)."""

from __future__ import annotations

from ...errors import ConfigError
from .knowledge import Knowledge, Reals


def scaled_backdoor(known: Knowledge, *, learning_rate: float = 1.0) -> Reals:
    """n / (η A) times what the attackers trained on poisoned data (model replacement).

    The server makes η/n Σ of the updates; A of these leave exactly the attackers' own update in
    it, beside η/n times the honest ones, which cancel out near convergence. Aims at the mean, and
    is defeated by bounds on the norm.

    Args:
        known: what the attackers know; ``own_D`` is their poisoned update.
        learning_rate: η of the server.

    Raises:
        ConfigError: the attackers have trained nothing, or η is not positive.
    """
    if known.own_D is None:
        raise ConfigError("a scaled backdoor needs what the attackers trained themselves", hint="pass own_D")
    if not learning_rate > 0:
        raise ConfigError(f"the server's learning rate is {learning_rate}, expected more than 0")
    return known.n / (learning_rate * known.num_attackers) * known.own_D
