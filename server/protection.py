"""Whether a run can be done with updates that the server does not see: asked when its plan is submitted."""

from __future__ import annotations

from ..errors import ConfigError
from ..layout import Layout
from ..plan import Plan
from ..privacy.secagg.grouping import grouping_fault, groups_left
from ..privacy.secagg.holders import sharing_fault, usual_reserves
from .planner import fewest_updates, needed
from .sum_descriptor import HONEST_BESIDE_COLLUDERS, colluders_of

# What decides by distances alone, and whose decision is a plain mean of those it selects.
SELECTING = ("multi-krum", "mda", "mean")


def require_protectable(plan: Plan) -> None:
    """Refuse what cannot be done under the plan's protection.

    Raises:
        ConfigError: with the first such thing, and what to do about it.
    """
    for wrong, reason in (*_always(plan), *_by_mode(plan)):
        if wrong:
            raise ConfigError(f"protection {plan.protection!r}: {reason}")


def require_protectable_model(plan: Plan, layout: Layout) -> None:
    """Refuse a model of which a secure sum would leave something out.

    Raises:
        ConfigError: it has buffers or counters that are to be averaged.
    """
    others = layout.num_buffers + layout.num_counters
    if plan.protection != "none" and others and plan.aggregator.buffers != "local":
        raise ConfigError(
            f"protection {plan.protection!r}: the model has {others} values in buffers and counters, which are in no "
            "secure sum",
            hint='set aggregator.buffers to "local", so that each site keeps its own',
        )


def inputs_of_the_rule(plan: Plan) -> int:
    """How many updates, or means of groups, the rule may be given at the least."""
    fewest, asked = fewest_updates(plan.cohort), needed(plan.cohort)
    if plan.protection != "groups":
        return fewest
    return groups_left(
        asked,
        plan.secure.group_size,
        colluders_of(plan, asked),
        away=asked - fewest,
        min_sites=plan.secure.min_sites,
    )


def _always(plan: Plan) -> tuple[tuple[bool, str], ...]:
    wanted, fewest = plan.aggregator, fewest_updates(plan.cohort)
    return (
        (plan.protection == "shares", "there is none such yet; there are masks, groups and sketch"),
        (wanted.reference is not None, f"aggregator {wanted.name!r} would show the server {wanted.reference}'s update"),
        (
            wanted.clip_norm is not None,
            "the server sees no update to clip: set secure.clip_norm, which every site keeps to",
        ),
        (plan.cohort.late != "drop", "a late update is in no sum: set cohort.late to drop"),
        (
            fewest < plan.secure.min_sites,
            f"a round may close with {fewest} updates, and secure.min_sites is {plan.secure.min_sites}: "
            "raise cohort.quorum (or minimum)",
        ),
        (
            plan.secure.noise != "none" and plan.protection not in ("masks", "groups"),
            "noise would drown the distances that the rule decides by: leave secure.noise out",
        ),
        (
            wanted.weighting == "examples" and (plan.protection != "masks" or plan.secure.noise != "none"),
            "all updates weigh the same: leave aggregator.weighting out",
        ),
    )


def _by_mode(plan: Plan) -> tuple[tuple[bool, str], ...]:
    wanted, n = plan.aggregator, fewest_updates(plan.cohort)
    match plan.protection:
        case "masks":
            sees = f"aggregator {wanted.name!r} looks at single updates, and masks show the server their sum alone"
            return (
                (wanted.name != "mean", f"{sees}: take sketch or groups"),
                (bool(wanted.pre), "aggregator.pre mixes single updates, which the server does not see"),
                (wanted.reject_norm is not None, "the server sees no update's norm: leave aggregator.reject_norm out"),
            )
        case "groups":
            asked = needed(plan.cohort)
            fault = grouping_fault(
                asked,
                plan.secure.group_size,
                byzantine=wanted.f or 0,
                colluders=colluders_of(plan, asked),
                rule=wanted.name,
                away=asked - n,
                min_sites=plan.secure.min_sites,
            )
            return ((fault is not None, f"{fault}"),)
        case _:
            usual = usual_reserves(n)
            fault = sharing_fault(
                n,
                byzantine=wanted.f or 0,
                privacy_threshold=max(colluders_of(plan, n), usual.privacy_threshold),
                dropouts=usual.dropouts if plan.secure.dropouts is None else plan.secure.dropouts,
                wrong_holders=usual.wrong_holders if plan.secure.wrong_holders is None else plan.secure.wrong_holders,
            )
            return (
                (
                    wanted.name == "krum",
                    "aggregator 'krum' selects one update, and the sum of one is that update: take multi-krum",
                ),
                (
                    wanted.name not in SELECTING,
                    f"aggregator {wanted.name!r} does more than select whom to average: take {', '.join(SELECTING)}",
                ),
                (bool(wanted.pre), "aggregator.pre mixes updates, and a sum of selected ones has none mixed"),
                (
                    (selected := _fewest_selected(plan, n)) < (least := _fewest_in_sum(plan, n)),
                    f"aggregator {wanted.name!r} selects {selected} of {n} updates, and sites expect {least} in a sum: "
                    "raise cohort.quorum (or minimum), or lower f",
                ),
                (fault is not None, f"{fault}"),
            )


def _fewest_selected(plan: Plan, n: int) -> int:
    f = plan.aggregator.f or 0
    match plan.aggregator.name:
        case "multi-krum":
            return plan.aggregator.m or n - f - 2
        case "mda":
            return n - f
        case _:
            return n


def _fewest_in_sum(plan: Plan, n: int) -> int:
    """What a site's usual policy asks for."""
    return max(plan.secure.min_sites, colluders_of(plan, n) + HONEST_BESIDE_COLLUDERS, -(-n // 2))
