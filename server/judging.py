"""Before a round's updates are combined: what the rule is shown, what it decides, how that is recorded."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..aggregators.aggregator import Aggregator
from ..aggregators.decision import Combination, Coordinatewise, Decision, Middle
from ..aggregators.rows import Rows
from ..aggregators.workers import Workers
from ..errors import ConfigError, TooFewUpdates
from ..plan import Plan
from ..privacy.secagg.protectable import inputs_of_the_rule, require_protectable
from .aggregation import aggregator_for, trainable_rows
from .aggregator_state import LAST_AGGREGATE, StoredRows, add_to_histories
from .hashed_file import WrittenFile
from .history import Judgement, Participation
from .update_file import UpdateFile

LARGEST_SCORE = 1e300  # an infinite score is written as this


@dataclass(frozen=True, slots=True)
class Hearing:
    """What a rule is shown of a round.

    Attributes:
        updates: those to be combined, by site, in the order of their names.
        reference: the rows that the rule wants beside them.
        state: the histories with this round's updates in them, for a rule that keeps some.
    """

    updates: Mapping[str, UpdateFile]
    reference: Rows | None
    state: WrittenFile | None


def require_coherent(plan: Plan) -> None:
    """Refuse a plan whose rule does not exist, or does not fit the number of updates or the reference.

    Raises:
        ConfigError: with what to change.
    """
    wanted, aggregator = plan.aggregator, aggregator_for(plan.aggregator)
    if (aggregator.rule.reference == "required") != (wanted.reference is not None):
        verb = "needs" if wanted.reference is None else "has no use for"
        raise ConfigError(
            f"aggregator {wanted.name!r} {verb} a reference site",
            hint="aggregator.reference names the site whose update the others are measured by",
        )
    if plan.protection != "none":
        require_protectable(plan)
    fewest = inputs_of_the_rule(plan) - (wanted.reference is not None)
    try:
        aggregator.require(fewest)
    except TooFewUpdates as error:
        raise ConfigError(
            f"a round may close with {fewest} {'groups' if plan.protection == 'groups' else 'updates'}: {error}",
            hint="raise cohort.quorum (or minimum), or lower f",
        ) from None


def hear(
    aggregator: Aggregator,
    updates: Mapping[str, UpdateFile],
    reference_site: str | None,
    before: Path | None,
    out: Path,
) -> Hearing:
    """Gather what the rule is shown.

    Args:
        aggregator: the rule.
        updates: the round's, by site.
        reference_site: whose update the others are measured by, if the rule wants one.
        before: the aggregator's state after the round before.
        out: where the histories appear, for a rule that keeps some.

    Raises:
        Corrupt: the state before is another run's.
        StoreError: a file could not be read or written.
    """
    others = {site: updates[site] for site in sorted(updates) if site != reference_site}
    layout = next(iter(updates.values())).layout
    match aggregator.rule.reference:
        case "none":
            return Hearing(others, None, None)
        case "required":
            assert reference_site is not None  # noqa: S101  (the plan was checked, the round waited for it)
            return Hearing(others, trainable_rows([updates[reference_site]]), None)
        case "optional":
            last = StoredRows.open(before, layout).rows([LAST_AGGREGATE], layout) if before else None
            return Hearing(others, last, None)
        case "history":
            state = add_to_histories(before, others, layout, out)
            return Hearing(others, StoredRows.open(out, layout).rows(others, layout), state)


def judge(
    aggregator: Aggregator,
    hearing: Hearing,
    num_examples: Sequence[int],
    num_refused: int,
    seed: int,
    workers: Workers | None = None,
) -> Decision:
    """What the rule makes of the updates; ``num_refused`` more were worthless and never came so far.

    Raises:
        FoedusError: as ``Aggregator.decide``.
    """
    rows = trainable_rows(list(hearing.updates.values()))
    if aggregator.rule.f != 0:  # a rule that withstands nobody goes on without those that were refused
        aggregator = aggregator.without(num_refused, rows.num_rows + num_refused)
    return aggregator.decide(rows, num_examples, reference=hearing.reference, seed=seed, workers=workers)


def beside(aggregator: Aggregator, decision: Decision, num_updates: int) -> Combination:
    """What to make of buffers and counters, which no rule looks at.

    As of the updates, where each coordinate has its own defence and where the rule withstands nobody
    anyway. Otherwise whoever sends unremarkable updates would choose them, so that it is the median
    over all updates that were not refused. Where no update weighs anything they stay as they are.
    """
    made = decision.combination
    defended = isinstance(made, Coordinatewise) and made.mix_MN is None
    if defended or aggregator.rule.f == 0 or not decision.selected:
        return made
    shown = tuple(index for index in range(num_updates) if index not in decision.refused)
    return Coordinatewise(Middle((len(shown) - 1) // 2), shown)


def draw_seed(run: str, round: int, update_digests: Iterable[str]) -> int:
    """A seed that a restart finds again, and that no site can foresee: it hangs on everybody's update."""
    text = "/".join(["foedus", "aggregate", run, str(round), *update_digests])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def judgements(
    aggregator: Aggregator, parts: Sequence[tuple[int, Participation]], hearing: Hearing, decision: Decision
) -> dict[str, Judgement]:
    """What became of each update, by site.

    One that rests on no example weighs nothing under a rule that knows shares, and that is not held against its
    site. Under any other it has its say, and is judged like all: to claim nothing is no disguise.
    """
    places = {site: index for index, site in enumerate(hearing.updates)}
    found = {}
    for number, part in parts:
        index = places.get(part.site)
        if index is None:
            found[part.site] = Judgement(number, weight=None, score=None)
            continue
        reason = ""
        judged = part.num_examples or not aggregator.rule.weighable or index in decision.refused
        if judged and index not in decision.selected:
            reason = why_left_out(aggregator.name, decision, index)
        weights_N = decision.weights_N
        found[part.site] = Judgement(
            number,
            weight=None if weights_N is None else float(weights_N[index]),
            score=score_of(decision, index),
            reason=reason,
        )
    return found


def why_left_out(rule: str, decision: Decision, index: int) -> str:
    """Why an update that is not selected takes no part."""
    return decision.refused.get(index, f"{rule} left it out")


def score_of(decision: Decision, index: int) -> float | None:
    """An update's score as it is recorded; None where the rule has given it none."""
    if decision.scores_N is None or math.isnan(decision.scores_N[index]):
        return None
    return min(float(decision.scores_N[index]), LARGEST_SCORE)
