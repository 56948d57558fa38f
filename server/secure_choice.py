"""Whom a plan's rule selects among sites of which the server knows nothing but the distances of their updates.

Shape suffixes: P points, the last of them the origin; N sites judged.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from ..aggregators.by_distances import decide_by_distances
from ..aggregators.decision import Decision
from ..aggregators.geometry import Geometry
from ..plan import Plan
from ..privacy.secagg.descriptor import Mode, SessionDescriptor
from ..privacy.secagg.judging import Judged
from ..privacy.sharing.selection import integer_weights
from .aggregation import aggregator_for


def decision_of(plan: Plan, session: SessionDescriptor, judged: Judged) -> Decision:
    """What the rule decides of the sites judged, in their order; the same from the same.

    Raises:
        TooFewUpdates, InvalidUpdate: it cannot decide about so few, or with so many found worthless.
    """
    geometry = Geometry(judged.squared_PP / session.scale**2)
    return decide_by_distances(aggregator_for(plan.aggregator), geometry, num_refused=len(judged.refused))


def selected_by(plan: Plan, session: SessionDescriptor, judged: Judged) -> Collection[bytes]:
    """The ids of those that it selects; where updates are shared, mapped to what each weighs, a whole number to 1024.

    Such a weight is off by at most a 2048th of the largest.
    """
    decision = decision_of(plan, session, judged)
    if session.mode is not Mode.SHARES:
        return [judged.sites[index] for index in decision.selected]
    whole_N = integer_weights(weights_of(decision))
    return {site: weight for site, weight in zip(judged.sites, whole_N.tolist(), strict=True) if weight}


def weights_of(decision: Decision) -> npt.NDArray[np.float64]:
    """What each of the sites judged weighs; where they do not add up to 1, the rest is that of no update at all."""
    weights_N = decision.weights_N
    assert weights_N is not None  # noqa: S101  (what decides by distances combines by weights)
    return weights_N
