"""Whether a run can be done with updates that the server does not see: asked of a plan before anything begins."""

from __future__ import annotations

from ...errors import ConfigError
from ...layout import Layout
from ...plan import Plan
from .grouping import grouping_fault, groups_left
from .holders import sharing_fault
from .share_terms import UNEQUAL_RULES, largest_shared
from .terms import HONEST_BESIDE_COLLUDERS, colluders_of, packing_of, reserves_of

# What decides by distances alone, and whose decision is a plain mean of those it selects.
SELECTING = ("multi-krum", "mda", "mean")
# What decides by distances alone, though it weighs one more than another.
WEIGHING = (*SELECTING, *UNEQUAL_RULES)


def require_protectable(plan: Plan) -> None:
    """Refuse what cannot be done under the plan's protection.

    Raises:
        ConfigError: with the first such thing, and what to do about it.
    """
    for wrong, reason in (*_always(plan), *_by_mode(plan)):
        if wrong:
            raise ConfigError(f"protection {plan.protection!r}: {reason}")


def require_protectable_model(plan: Plan, layout: Layout, message_bytes: int) -> None:
    """Refuse a model of which a secure sum would leave something out, or which is too large to be shared.

    Args:
        plan: the run's.
        layout: of the model.
        message_bytes: how long a message of a sum may be.

    Raises:
        ConfigError: it has buffers or counters that are to be averaged, or too many values.
    """
    others = layout.num_buffers + layout.num_counters
    if plan.protection != "none" and others and plan.aggregator.buffers != "local":
        raise ConfigError(
            f"protection {plan.protection!r}: the model has {others} values in buffers and counters, which are in no "
            "secure sum",
            hint='set aggregator.buffers to "local", so that each site keeps its own',
        )
    if plan.protection == "shares":
        _require_shareable(plan, layout.num_trainable, message_bytes)


def _require_shareable(plan: Plan, num_values: int, message_bytes: int) -> None:
    n = plan.cohort.sites_needed
    packing = packing_of(plan, n)
    largest = largest_shared(n, packing, message_bytes)
    if num_values > largest:
        raise ConfigError(
            f"protection 'shares': the model has {num_values} trainable values; {n} sites can share {largest} with one "
            f"another, in {packing} blocks",
            hint="take protection 'sketch', or a smaller model",
        )


def inputs_of_the_rule(plan: Plan) -> int:
    """How many updates, or means of groups, the rule may be given at the least."""
    fewest, asked = plan.cohort.fewest_updates, plan.cohort.sites_needed
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
    wanted, fewest = plan.aggregator, plan.cohort.fewest_updates
    return (
        (
            plan.secure.packing is not None and plan.protection != "shares",
            "whole updates alone are packed: leave secure.packing out",
        ),
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
    wanted, n = plan.aggregator, plan.cohort.fewest_updates
    match plan.protection:
        case "masks":
            sees = f"aggregator {wanted.name!r} looks at single updates, and masks show the server their sum alone"
            asked = plan.cohort.sites_needed
            colluding = colluders_of(plan, asked)
            return (
                (wanted.name != "mean", f"{sees}: take sketch or groups"),
                (bool(wanted.pre), "aggregator.pre mixes single updates, which the server does not see"),
                (wanted.reject_norm is not None, "the server sees no update's norm: leave aggregator.reject_norm out"),
                (
                    asked < colluding + HONEST_BESIDE_COLLUDERS,
                    f"{asked} sites are asked, of whom {colluding} may collude, and sites expect "
                    f"{HONEST_BESIDE_COLLUDERS} others: lower secure.colluders, or ask more sites",
                ),
            )
        case "groups":
            asked = plan.cohort.sites_needed
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
            shares = plan.protection == "shares"
            n = plan.cohort.sites_needed if shares else n
            reserves = reserves_of(plan, n)
            allowed = WEIGHING if shares else SELECTING
            fault = sharing_fault(
                n,
                byzantine=wanted.f or 0,
                privacy_threshold=reserves.privacy_threshold,
                dropouts=reserves.dropouts,
                wrong_holders=reserves.wrong_holders,
                packing=packing_of(plan, n) if shares else 1,
            )
            return (
                (
                    wanted.name == "krum",
                    "aggregator 'krum' selects one update, and the sum of one is that update: take multi-krum",
                ),
                (
                    wanted.name not in allowed,
                    f"aggregator {wanted.name!r} does more than {'weigh' if shares else 'select whom to average'}: "
                    f"take {', '.join(allowed)}",
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
