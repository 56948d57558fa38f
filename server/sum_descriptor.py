"""What a round's secure sum is about: from the plan and the cohort to the descriptor that every site checks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..layout import Layout
from ..plan import Plan
from ..privacy.secagg.descriptor import Mode, Noise, SessionDescriptor
from ..privacy.secagg.grouping import group_threshold, num_groups
from ..privacy.secagg.holders import usual_reserves
from ..privacy.secagg.prg import Ring, Suite
from ..privacy.secagg.quantise import finest_scale, smallest_ring
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.sketch_terms import finest_sketched_scale
from ..privacy.secagg.thresholds import ring_degree, share_threshold
from ..protos.config_digest import config_sha256
from ..protos.messages import Assignment
from .history import Round

COMPLETE_UP_TO = 256  # sites; above, each has neighbours on a ring
EXPECTED_DROPOUTS = 0.1  # of the sites, for which a ring has neighbours enough
HONEST_BESIDE_COLLUDERS = 3
MODES = {"masks": Mode.MASKS, "groups": Mode.GROUPS, "sketch": Mode.SKETCH, "shares": Mode.SHARES}
NOISES = {"none": Noise.NONE, "skellam": Noise.SKELLAM, "discrete-gaussian": Noise.DISCRETE_GAUSSIAN}


@dataclass(frozen=True, slots=True)
class _Terms:
    """What hangs on the protection."""

    degree: int
    threshold: int
    dropouts: int
    min_survivors: int
    group_size: int = 0
    privacy_threshold: int = 0
    packing: int = 0
    wrong_holders: int = 0


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
    wanted, n, d = plan.secure, len(participants), layout.num_trainable
    terms = _terms(plan, n, _colluders(plan, n), round.quorum)
    weighted, scale = weighs_examples(plan), wanted.scale or _scale(plan, n, d)
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
        num_coordinates=d,
        layout_digest=bytes.fromhex(layout.digest),
        model_digest=bytes.fromhex(round.base_sha256),
        config_digest=config_sha256(order),
        ring=smallest_ring(n, scale, wanted.clip_norm, weighted=weighted) or Ring.W64,
        clip_norm=wanted.clip_norm,
        scale=scale,
        weighted=weighted,
        degree=terms.degree,
        threshold=terms.threshold,
        dropouts=terms.dropouts,
        colluders=_colluders(plan, n),
        rule=plan.aggregator.name,
        min_sites=wanted.min_sites,
        min_survivors=terms.min_survivors,
        deadlines_seconds=(deadline,) * 5,
        group_size=terms.group_size,
        regroups=plan.protection == "groups" and wanted.regroup == "round",
        byzantine=plan.aggregator.f or 0,
        privacy_threshold=terms.privacy_threshold,
        packing=terms.packing,
        wrong_holders=terms.wrong_holders,
        noise=NOISES[wanted.noise],
        noise_multiplier=wanted.noise_multiplier,
    )


def weighs_examples(plan: Plan) -> bool:
    """Whether the sum is weighted by numbers of examples, which it then hides as well."""
    alike = plan.aggregator.weighting == "uniform" or plan.secure.noise != "none"
    return plan.protection == "masks" and not alike


def _colluders(plan: Plan, num_sites: int) -> int:
    return math.ceil(num_sites / 5) if plan.secure.colluders is None else plan.secure.colluders


def _scale(plan: Plan, num_sites: int, num_coordinates: int) -> float:
    if plan.protection == "sketch":
        return finest_sketched_scale(plan.secure.clip_norm, num_coordinates)
    return finest_scale(num_sites, plan.secure.clip_norm, weighted=weighs_examples(plan))


def _terms(plan: Plan, n: int, colluders: int, quorum: int) -> _Terms:
    wanted = plan.secure
    least = max(wanted.min_sites, colluders + HONEST_BESIDE_COLLUDERS)
    match plan.protection:
        case "groups":
            largest = -(-n // num_groups(n, wanted.group_size))
            return _Terms(
                degree=0,
                threshold=group_threshold(n, colluders, 0, wanted.group_size),
                dropouts=0,
                min_survivors=max(wanted.min_sites, -(-largest // 2)),
                group_size=wanted.group_size,
            )
        case "sketch":
            usual = usual_reserves(n)
            return _Terms(
                degree=0,
                threshold=share_threshold(n, colluders, 0),
                dropouts=usual.dropouts if wanted.dropouts is None else wanted.dropouts,
                min_survivors=max(least, math.ceil(n / 2)),
                privacy_threshold=max(colluders, usual.privacy_threshold),
                packing=1,
                wrong_holders=usual.wrong_holders if wanted.wrong_holders is None else wanted.wrong_holders,
            )
        case _:
            dropouts = math.ceil(EXPECTED_DROPOUTS * n)
            degree = ring_degree(n, colluders, dropouts) if n > COMPLETE_UP_TO else 0
            return _Terms(
                degree=degree,
                threshold=share_threshold(n, colluders, degree),
                dropouts=dropouts,
                min_survivors=max(least, quorum, math.ceil(n / 2)),
            )
