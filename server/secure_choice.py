"""Whom a plan's rule selects among sites of which the server knows nothing but the distances of their updates.

Shape suffixes: P points, the last of them the origin.
"""

from __future__ import annotations

from ..aggregators.by_distances import decide_by_distances
from ..aggregators.decision import Decision
from ..aggregators.geometry import Geometry
from ..plan import Plan
from ..privacy.secagg.descriptor import SessionDescriptor
from ..privacy.secagg.judging import Judged
from .aggregation import aggregator_for


def decision_of(plan: Plan, session: SessionDescriptor, judged: Judged) -> Decision:
    """What the rule decides of the sites judged, in their order; the same from the same.

    Raises:
        TooFewUpdates, InvalidUpdate: it cannot decide about so few, or with so many found worthless.
    """
    geometry = Geometry(judged.squared_PP / session.scale**2)
    return decide_by_distances(aggregator_for(plan.aggregator), geometry, num_refused=len(judged.refused))


def selected_by(plan: Plan, session: SessionDescriptor, judged: Judged) -> tuple[bytes, ...]:
    """The ids of those that it selects."""
    return tuple(judged.sites[index] for index in decision_of(plan, session, judged).selected)
