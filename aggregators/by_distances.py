"""What a rule decides where nobody sees the updates, but how far they lie from each other and from the origin.

Shape suffixes: N updates.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import ConfigError
from .aggregator import Aggregator, too_long
from .decision import Decision, WeightedSum
from .geometry import Geometry
from .protocols import DistanceRule, PlainRule


def decide_by_distances(aggregator: Aggregator, geometry: Geometry, *, num_refused: int = 0) -> Decision:
    """Whose updates are combined, and with which weights, as ``Aggregator.decide`` does with the updates at hand.

    Args:
        aggregator: its rule decides by distances, or by nothing at all; all updates weigh the same.
        geometry: of the N updates and the origin.
        num_refused: how many more updates there were, which were found worthless before.

    Raises:
        ConfigError: the rule, or what comes before it, needs more than distances.
        TooFewUpdates: the rule's theorem does not cover what is left of the updates.
        InvalidUpdate: more updates are worthless than the rule withstands.
    """
    rule, n, limit = aggregator.rule, geometry.num_updates, aggregator.reject_norm
    if aggregator.pre or aggregator.clip_norm is not None or not isinstance(rule, DistanceRule | PlainRule):
        raise ConfigError(f"{aggregator.name} needs more than the distances between updates")
    norms_N = geometry.norms_N
    refused = {} if limit is None else too_long(norms_N, limit)
    # A rule that withstands nobody has the bound instead, and goes on without whoever exceeds it.
    able = aggregator.without(num_refused + (len(refused) if rule.f != 0 else 0), n + num_refused)
    kept = [index for index in range(n) if index not in refused]
    able.require(len(kept))
    shares_K, judging = np.full(len(kept), 1 / len(kept)), able.rule
    if isinstance(judging, DistanceRule):
        decision = judging.judge(geometry.without(refused.keys()), shares_K)
    else:
        assert isinstance(judging, PlainRule)  # noqa: S101  (asked above)
        decision = judging.decide(shares_K)
    if not isinstance(decision.combination, WeightedSum):
        raise ConfigError(f"{aggregator.name} needs more than a weighted sum of the updates")
    weights_N, scores_N = np.zeros(n), None
    weights_N[kept] = decision.combination.weights_N[: len(kept)]
    if decision.scores_N is not None:
        scores_N = np.full(n, np.inf)
        scores_N[kept] = decision.scores_N
    chosen = tuple(kept[index] for index in decision.selected)
    return replace(decision, combination=WeightedSum(weights_N), selected=chosen, scores_N=scores_N, refused=refused)
