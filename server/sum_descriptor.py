"""What a round's secure sum is about: from the plan and the cohort to the descriptor that every site checks."""

from __future__ import annotations

import math

from ..layout import Layout
from ..plan import Plan
from ..privacy.secagg.descriptor import Mode, SessionDescriptor
from ..privacy.secagg.prg import Ring, Suite
from ..privacy.secagg.quantise import finest_scale, smallest_ring
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.thresholds import ring_degree, share_threshold
from ..protos.config_digest import config_sha256
from ..protos.messages import Assignment
from .history import Round

COMPLETE_UP_TO = 256  # sites; above, each has neighbours on a ring
EXPECTED_DROPOUTS = 0.1  # of the sites, for which a ring has neighbours enough
HONEST_BESIDE_COLLUDERS = 3
MODES = {"masks": Mode.MASKS}


def describe(
    plan: Plan, round: Round, order: Assignment, layout: Layout, roster: Roster, participants: tuple[bytes, ...]
) -> SessionDescriptor:
    """The session of one attempt at a round.

    Args:
        plan: the run's.
        round: with its number, attempt and quorum.
        order: the assignment that every site of the cohort gets.
        layout: of the model.
        roster: signed by the operator.
        participants: the ids of the cohort's sites, in any order.

    Raises:
        ConfigError: there can be no such session; the reason says which of its numbers is out of range.
    """
    wanted, n = plan.secure, len(participants)
    colluders = math.ceil(n / 5) if wanted.colluders is None else wanted.colluders
    dropouts = math.ceil(EXPECTED_DROPOUTS * n)
    degree = ring_degree(n, colluders, dropouts) if n > COMPLETE_UP_TO else 0
    weighted = weighs_examples(plan)
    scale = wanted.scale or finest_scale(n, wanted.clip_norm, weighted=weighted)
    deadline = math.ceil(plan.cohort.deadline_seconds)
    return SessionDescriptor(
        suite=Suite.AES_256_CTR,
        federation=roster.federation,
        run=round.run,
        round=round.number,
        attempt=round.attempt,
        mode=MODES[plan.protection],
        roster_digest=roster.digest,
        participants=tuple(sorted(participants)),
        num_coordinates=layout.num_trainable,
        layout_digest=bytes.fromhex(layout.digest),
        model_digest=bytes.fromhex(round.base_sha256),
        config_digest=config_sha256(order),
        ring=smallest_ring(n, scale, wanted.clip_norm, weighted=weighted) or Ring.W64,
        clip_norm=wanted.clip_norm,
        scale=scale,
        weighted=weighted,
        degree=degree,
        threshold=share_threshold(n, colluders, degree),
        dropouts=dropouts,
        colluders=colluders,
        rule=plan.aggregator.name,
        min_sites=wanted.min_sites,
        min_survivors=max(wanted.min_sites, round.quorum, colluders + HONEST_BESIDE_COLLUDERS, math.ceil(n / 2)),
        deadlines_seconds=(deadline,) * 5,
    )


def weighs_examples(plan: Plan) -> bool:
    """Whether the sum is weighted by numbers of examples, which it then hides as well."""
    return plan.aggregator.name == "mean" and plan.aggregator.weighting != "uniform"
