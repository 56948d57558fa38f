"""From a session whose shares have come to what a rule combines: one mean of those in the sum, or one of each group.

Shape suffixes: D trainable values, N means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..aggregators.decision import Combination, Decision, WeightedSum
from ..files import replacing, storing
from ..layout import Layout
from ..plan import Plan
from ..privacy.secagg.collect_groups import GroupCollection
from ..privacy.secagg.opening import SecureSum, add_up, open_sum
from ..privacy.secagg.opening_groups import add_up_groups, open_groups
from ..privacy.secagg.prg import Words
from ..privacy.secagg.sharing_collect import SharingCollection
from ..privacy.secagg.sharing_opening import add_up_selected, add_up_shares, open_selected
from .aggregation import aggregator_for, trainable_rows
from .history import Judgement
from .judging import draw_seed, score_of, why_left_out
from .secure_choice import decision_of, weights_of
from .sum_state import SumState, masked_in, shares_updates
from .update_file import UpdateFile

BLOCK_VALUES = 1 << 18


@dataclass(frozen=True, slots=True)
class Opened:
    """What a session has come to.

    Attributes:
        means: the mean of each sum, as if one site had sent it.
        combination: how they are combined.
        judged: what became of each site that sent a masked update, by id; its round is filled in later.
    """

    means: tuple[UpdateFile, ...]
    combination: Combination
    judged: Mapping[bytes, Judgement]


def require_openable(state: SumState) -> None:
    """Raise SecureSumFailed unless the shares revealed take the masks off."""
    match state:
        case GroupCollection():
            open_groups(state)
        case SharingCollection() if shares_updates(state):
            add_up_shares(state)
        case SharingCollection():
            open_selected(state)
        case _:
            open_sum(state)


def open_means(
    state: SumState, plan: Plan, round: int, row: Callable[[bytes], Path], layout: Layout, out: Callable[[str], Path]
) -> Opened:
    """Add up masked words, take the masks off, and let the plan's rule decide about what the server then sees.

    Args:
        state: of a session whose last phase is over.
        plan: the run's.
        round: its round.
        row: where a site's masked words are, by its id.
        layout: of the model; buffers and counters, which no sum carries, are zeros.
        out: where a mean of a name appears.

    Raises:
        SecureSumFailed: shares are missing or wrong, or the sum is not of what was judged.
        FoedusError: as the rule.
        StoreError: a file could not be read or written.
    """
    session = state.descriptor

    def words(site: bytes) -> Words:
        with storing(f"reading {row(site)}"):
            return np.memmap(row(site), session.ring.unsigned, "r", shape=(session.num_words,))

    alike = {site: Judgement(round, weight=None, score=None) for site in masked_in(state)}
    whole = 1.0  # what the mean of those in the sum weighs; the rest is that of no update at all
    match state:
        case GroupCollection():
            groups = {
                place: (_written(total, layout, out(f"group-{place}")), total.survivors)
                for place, total in add_up_groups(state, open_groups(state), words)
            }
            digests = [one.body.hex() for group in state.left.values() for _, one in sorted(group.masked.items())]
            return _by_groups(plan, round, groups, alike, draw_seed(session.run, round, digests))
        case SharingCollection() if shares_updates(state):
            decision = _decision(state, plan)
            whole, total = float(weights_of(decision).sum()), add_up_shares(state)
            judged = alike | _selection(state, plan, round, decision, whole)
        case SharingCollection():
            opening = open_selected(state)
            total = add_up_selected(state, opening, ((site, words(site)) for site in opening.survivors))
            judged = alike | _selection(state, plan, round, _decision(state, plan), whole)
        case _:
            opening = open_sum(state)
            total = add_up(session, opening, ((site, words(site)) for site in opening.survivors))
            judged = alike
    return Opened((_written(total, layout, out("sum")),), WeightedSum(np.array([whole])), judged)


def _by_groups(
    plan: Plan,
    round: int,
    groups: Mapping[int, tuple[UpdateFile, tuple[bytes, ...]]],
    alike: Mapping[bytes, Judgement],
    seed: int,
) -> Opened:
    """The rule sees one mean a group. What it makes of one is not held against those in it: it may be one of them."""
    means = tuple(mean for mean, _ in groups.values())
    decision = aggregator_for(plan.aggregator).decide(trainable_rows(list(means)), np.ones(len(means)), seed=seed)
    judged = dict(alike)
    for index, (_, sites) in enumerate(groups.values()):
        weight = None if decision.weights_N is None else float(decision.weights_N[index]) / len(sites)
        if index not in decision.selected:
            weight = 0.0
        judged |= dict.fromkeys(sites, Judgement(round, weight, score_of(decision, index)))
    return Opened(means, decision.combination, judged)


def _decision(state: SharingCollection, plan: Plan) -> Decision:
    assert state.judged is not None  # noqa: S101  (there is no last phase without a selection)
    return decision_of(plan, state.descriptor, state.judged)


def _selection(
    state: SharingCollection, plan: Plan, round: int, decision: Decision, whole: float
) -> dict[bytes, Judgement]:
    judged, unit = state.judged, whole / sum(state.weights.values())
    assert judged is not None  # noqa: S101  (as above)
    found = {site: Judgement(round, 0.0, None, reason) for site, reason in judged.refused.items()}
    for index, site in enumerate(judged.sites):
        score = score_of(decision, index)
        if index in decision.selected:
            found[site] = Judgement(round, unit * state.weights.get(site, 0), score)
        else:
            reason = why_left_out(plan.aggregator.name, decision, index)
            found[site] = Judgement(round, 0.0, score, reason)
    return found


def _written(total: SecureSum, layout: Layout, out: Path) -> UpdateFile:
    divisor = total.scale * total.total_weight
    with replacing(out, durable=False) as file:
        for start in range(0, len(total.sum_D), BLOCK_VALUES):
            mean_C = total.sum_D[start : start + BLOCK_VALUES] / divisor
            file.write(mean_C.astype("<f4").data)
        file.write(bytes(layout.update_bytes - 4 * layout.num_trainable))
    return UpdateFile.open(out, layout)
