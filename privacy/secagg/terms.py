"""From a run's plan and how many sites there are to the session of a round: what every site then checks.

Pure, so that whoever wants to know beforehand what would be offered works it out as the server does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...plan import Plan
from .descriptor import Mode, Noise, SessionDescriptor
from .grouping import colluders_in_group, fewest_in_group, group_threshold
from .holders import Reserves, answers_needed, widest_packing
from .noise import finest_noisy_scale
from .prg import Ring, Suite
from .quantise import finest_scale, smallest_ring
from .roster import Roster
from .share_terms import finest_shared_scale
from .sketch_terms import finest_sketched_scale
from .thresholds import ring_degree, share_threshold

COMPLETE_UP_TO = 256  # sites; above, each has neighbours on a ring
EXPECTED_DROPOUTS = 0.1  # of the sites, for which a ring has neighbours enough
HONEST_BESIDE_COLLUDERS = 3
MODES = {"masks": Mode.MASKS, "groups": Mode.GROUPS, "sketch": Mode.SKETCH, "shares": Mode.SHARES}
NOISES = {"none": Noise.NONE, "skellam": Noise.SKELLAM, "discrete-gaussian": Noise.DISCRETE_GAUSSIAN}


@dataclass(frozen=True, slots=True)
class Terms:
    """What hangs on the protection."""

    degree: int
    threshold: int
    dropouts: int
    min_survivors: int
    min_sites: int = 0
    group_size: int = 0
    privacy_threshold: int = 0
    packing: int = 0
    wrong_holders: int = 0


def session_of(
    plan: Plan,
    *,
    quorum: int,
    run: str,
    round: int,
    attempt: int,
    roster: Roster,
    participants: tuple[bytes, ...],
    num_coordinates: int,
    layout_digest: bytes,
    model_digest: bytes,
    config_digest: bytes,
) -> SessionDescriptor:
    """The session of one attempt at a round.

    Args:
        plan: the run's.
        quorum: with so many updates the round may close.
        participants: the ids of the cohort's sites, in any order.
        run, round, attempt, roster, num_coordinates, layout_digest, model_digest, config_digest: as of the session.

    Raises:
        ConfigError: there can be no such session; the reason says which of its numbers is out of range.
    """
    wanted, n, d = plan.secure, len(participants), num_coordinates
    colluders = colluders_of(plan, n)
    terms = _terms(plan, n, colluders, quorum)
    weighted, scale = weighs_examples(plan), wanted.scale or _scale(plan, terms, n, d)
    deadline = math.ceil(plan.cohort.deadline_seconds)
    return SessionDescriptor(
        suite=Suite.AES_256_CTR,
        federation=roster.federation,
        run=run,
        round=round,
        attempt=attempt,
        mode=MODES[plan.protection],
        roster_digest=roster.digest,
        participants=tuple(sorted(participants)),
        num_coordinates=d,
        layout_digest=layout_digest,
        model_digest=model_digest,
        config_digest=config_digest,
        ring=_ring(plan, terms, n, scale),
        clip_norm=wanted.clip_norm,
        scale=scale,
        weighted=weighted,
        degree=terms.degree,
        threshold=terms.threshold,
        dropouts=terms.dropouts,
        colluders=colluders,
        rule=plan.aggregator.name,
        min_sites=max(wanted.min_sites, terms.min_sites),
        min_survivors=terms.min_survivors,
        deadlines_seconds=(deadline,) * 5,
        group_size=terms.group_size,
        regroups=plan.protection == "groups" and wanted.regroup == "round",
        byzantine=plan.aggregator.f or 0,
        privacy_threshold=terms.privacy_threshold,
        packing=terms.packing,
        wrong_holders=terms.wrong_holders,
        strict=plan.protection == "shares" or (plan.protection == "sketch" and wanted.strict),
        noise=NOISES[wanted.noise],
        noise_multiplier=wanted.noise_multiplier,
    )


def masked_terms(num_sites: int, colluders: int, least: int) -> Terms:
    """Those of one sum over all sites, of whom so many may collude with the server; ``least`` are in it."""
    dropouts = math.ceil(EXPECTED_DROPOUTS * num_sites)
    degree = ring_degree(num_sites, colluders, dropouts) if num_sites > COMPLETE_UP_TO else 0
    return Terms(
        degree=degree,
        threshold=share_threshold(num_sites, colluders, degree),
        dropouts=dropouts,
        min_survivors=max(least, colluders + HONEST_BESIDE_COLLUDERS, math.ceil(num_sites / 2)),
    )


def usual_colluders(num_sites: int) -> int:
    """How many of so many sites are taken to collude with the server, unless somebody says otherwise."""
    return math.ceil(num_sites / 5)


def colluders_of(plan: Plan, num_sites: int) -> int:
    """The same, as a plan says."""
    return usual_colluders(num_sites) if plan.secure.colluders is None else plan.secure.colluders


def reserves_of(plan: Plan, num_sites: int) -> Reserves:
    """How many of the sites that share sketches or updates may collude, lie or vanish.

    Unless the plan says otherwise, as many may lie as its rule withstands, one at least, and all but those that are
    needed may vanish. Of those that share whole updates that is a twentieth, since each that may vanish or lie makes
    the shares longer.
    """
    wanted, colluding = plan.secure, max(1, colluders_of(plan, num_sites))
    lying = max(1, plan.aggregator.f or 0) if wanted.wrong_holders is None else wanted.wrong_holders
    shares = plan.protection == "shares"
    spare = -(-num_sites // 20) if shares else max(0, num_sites - answers_needed(colluding, lying))
    return Reserves(colluding, spare if wanted.dropouts is None else wanted.dropouts, lying)


def packing_of(plan: Plan, num_sites: int) -> int:
    """Into how many blocks a shared update is cut: as many as there is room for, unless the plan says otherwise."""
    return plan.secure.packing or max(1, widest_packing(num_sites, reserves_of(plan, num_sites)))


def weighs_examples(plan: Plan) -> bool:
    """Whether the sum is weighted by numbers of examples, which it then hides as well."""
    alike = plan.aggregator.weighting == "uniform" or plan.secure.noise != "none"
    return plan.protection == "masks" and not alike


def _honest(plan: Plan, terms: Terms, num_sites: int) -> int:
    """How many sites' noise is in a sum for certain, beside what colluders say of theirs."""
    colluders = colluders_of(plan, num_sites)
    if plan.protection == "groups":
        colluders = colluders_in_group(num_sites, colluders, plan.secure.group_size)
    return max(1, max(plan.secure.min_sites, terms.min_sites, terms.min_survivors) - colluders)


def _noise(plan: Plan, terms: Terms, num_sites: int, scale: float) -> float:
    """The standard deviation of all sites' noise together, in steps."""
    one = plan.secure.noise_multiplier * scale * plan.secure.clip_norm / math.sqrt(_honest(plan, terms, num_sites))
    return one * math.sqrt(num_sites)


def _ring(plan: Plan, terms: Terms, num_sites: int, scale: float) -> Ring:
    if plan.protection in ("sketch", "shares"):
        return Ring.W32
    clip_norm, weighted, noise = plan.secure.clip_norm, weighs_examples(plan), _noise(plan, terms, num_sites, scale)
    return smallest_ring(num_sites, scale, clip_norm, weighted=weighted, noise_deviation=noise) or Ring.W64


def _scale(plan: Plan, terms: Terms, num_sites: int, num_coordinates: int) -> float:
    wanted = plan.secure
    if plan.protection == "sketch":
        return finest_sketched_scale(wanted.clip_norm, num_coordinates)
    if plan.protection == "shares":
        return finest_shared_scale(wanted.clip_norm, num_coordinates, terms.packing)
    if wanted.noise != "none":
        honest = _honest(plan, terms, num_sites)
        return finest_noisy_scale(num_sites, honest, wanted.clip_norm, wanted.noise_multiplier)
    return finest_scale(num_sites, plan.secure.clip_norm, weighted=weighs_examples(plan))


def _terms(plan: Plan, n: int, colluders: int, quorum: int) -> Terms:
    wanted = plan.secure
    least = max(wanted.min_sites, colluders + HONEST_BESIDE_COLLUDERS)
    match plan.protection:
        case "groups":
            least = fewest_in_group(n, wanted.group_size, colluders, min_sites=wanted.min_sites)
            return Terms(
                degree=0,
                threshold=group_threshold(n, colluders, 0, wanted.group_size),
                dropouts=0,
                min_sites=least,
                min_survivors=least,
                group_size=wanted.group_size,
            )
        case "sketch" | "shares":
            reserves = reserves_of(plan, n)
            return Terms(
                degree=0,
                threshold=share_threshold(n, colluders, 0),
                dropouts=reserves.dropouts,
                min_sites=least,
                min_survivors=max(least, math.ceil(n / 2)),
                privacy_threshold=reserves.privacy_threshold,
                packing=packing_of(plan, n) if plan.protection == "shares" else 1,
                wrong_holders=reserves.wrong_holders,
            )
        case _:
            return replace(masked_terms(n, colluders, max(least, quorum)), min_sites=least)
