"""A query as a secure sum: its session, what a site checks of it, what it costs, and when it must not be answered."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from ..events import Event
from ..renyi import epsilon
from ..secagg.charges import released
from ..secagg.codes import AbortCode, Refusal, abort
from ..secagg.descriptor import WHOLE_NUMBERS, Mode, Noise, SessionDescriptor
from ..secagg.member import Local
from ..secagg.noise import site_variance
from ..secagg.opening import SecureSum
from ..secagg.prg import Ring
from ..secagg.state import SiteState, Stage, Step
from .answer import Answers
from .counters import decode
from .differencing import Cohort, differencing_fault
from .query import Query

DELTA = 1e-6  # with which an answer's ε is stated
_KINDS = {"skellam": Noise.SKELLAM, "discrete-gaussian": Noise.DISCRETE_GAUSSIAN}


def session_fields(query: Query) -> dict[str, Any]:
    """The fields of a ``SessionDescriptor`` that follow from a query.

    The query's digest stands where layout, model and configuration do. The noise, a multiple of what one person can
    add, is put in units of what one site can.
    """
    z = query.noise.multiplier * query.l2_sensitivity / query.most_per_site if query.noise else 0.0
    return {
        "mode": Mode.MASKS,
        "num_coordinates": query.shape.num_counters,
        "layout_digest": query.digest,
        "model_digest": query.digest,
        "config_digest": query.digest,
        "ring": Ring.W64,
        "clip_norm": float(query.most_per_site),
        "scale": 1.0,
        "weighted": False,
        "rule": WHOLE_NUMBERS,
        "noise": _KINDS[query.noise.kind] if query.noise else Noise.NONE,
        "noise_multiplier": z,
    }


def local(query: Query) -> Local:
    """What a site that was given a query knows of its session by itself."""
    digest = query.digest
    return Local(
        num_coordinates=query.shape.num_counters, layout_digest=digest, model_digest=digest, config_digest=digest
    )


def require_session(query: Query, session: SessionDescriptor) -> None:
    """Check that a session is the query's: the server may choose who is asked, not what is done with the answers.

    Raises:
        SecureSumFailed: "policy", with the field that differs.
    """
    for name, expected in session_fields(query).items():
        if (found := getattr(session, name)) != expected:
            shown = (found.hex()[:12], expected.hex()[:12]) if isinstance(expected, bytes) else (found, expected)
            raise abort(AbortCode.POLICY, f"{name} is {shown[0]}, query {query.name!r} needs {shown[1]}")
    if session.needed_survivors < query.min_sites:
        reason = f"a sum of {session.needed_survivors} sites would do, query {query.name!r} needs {query.min_sites}"
        raise abort(AbortCode.POLICY, reason)


def cost(query: Query, session: SessionDescriptor) -> Event:
    """What opening the sum is to each person, whose records at a site might not be there.

    Whoever is at two sites, is counted twice.
    """
    return released(session, l2=query.l2_sensitivity, l1=query.l1_sensitivity)


def answers(query: Query, session: SessionDescriptor, opened: SecureSum) -> Answers:
    """What the sum says, and what having said it is to each person."""
    num_sites = len(opened.survivors)
    if query.noise is None:
        return Answers(decode(query, opened.sum_D), num_sites)
    deviation = math.sqrt(site_variance(session) * num_sites)
    found = decode(query, opened.sum_D, deviation=deviation)
    return Answers(found, num_sites, epsilon([cost(query, session)], DELTA), DELTA)


def guarded(step: Step, answered: Collection[Cohort], fewest: int = 3) -> Step:
    """A site's step, unless it acknowledges a sum that must not follow those answered: then the end of its session.

    Pass every step of ``secagg.site.receive`` through it before the state is stored. Whose sum it is, a site learns
    only then, since sites drop out. With enough noise the same may be asked of anybody.
    """
    state = step.state
    if state.stage is not Stage.ACKED or not state.descriptor.whole or state.descriptor.noise is not Noise.NONE:
        return step
    fault = differencing_fault(frozenset(state.survivors), answered, fewest)
    if not fault:
        return step
    refusal = Refusal(AbortCode.POLICY, fault)
    return Step(state.ended(refusal), refusal=refusal)


def may_be_answered(state: SiteState) -> Cohort | None:
    """The cohort to remember with this state, once it has acknowledged a sum without noise: it may be opened."""
    exact = state.descriptor.whole and state.descriptor.noise is Noise.NONE
    return frozenset(state.survivors) if exact and state.stage in (Stage.ACKED, Stage.REVEALED) else None
