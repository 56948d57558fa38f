"""From the holders' answers to what a rule decides by: first who dealt or answers falsely, then the distances.

Shape suffixes: H holders who answered, N dealers, A pairs of them, P points, the last of them the origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ..sharing.dealers import Judgement, judge_degrees, judge_masks, judge_shortness
from ..sharing.field import Integers, Stream
from ..sharing.packing import Packing
from ..sharing.products import assembled
from ..sharing.selection import implausible, squared_distances
from ..sharing.sketches import PLAUSIBLE, too_long, unit_of
from .checks import require_enough
from .codes import AbortCode, abort
from .contradictions import Outcome, settle
from .dealing import Dealing, pairs
from .sharing_messages import Products


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """What a rule may choose from.

    Attributes:
        sites: those whose sketches, or updates, are worth a look, sorted: N.
        squared_PP: the squared distances between their updates and to no update at all (the last row), float64, in
            whole steps squared, as ``aggregators.geometry.Geometry`` takes them; infinite where none can be.
        refused: why each other dealer must not be selected.
        holders: whose answers are used from here on.
        packing: how their answers are decoded: with as many liars as are still to be expected.
    """

    sites: tuple[bytes, ...]
    squared_PP: npt.NDArray[np.float64] = field(repr=False)
    refused: Mapping[bytes, str]
    holders: tuple[bytes, ...]
    packing: Packing


def judge(
    dealing: Dealing,
    dealers: tuple[bytes, ...],
    answers: Mapping[bytes, Products],
    *,
    byzantine: int,
    shift: int | None,
    bound: int,
    draw: Stream,
) -> Judged:
    """Find who lied, decode the products of the others' sketches, and take them for what they are worth.

    Args:
        dealing: how sketches were dealt.
        dealers: whose sketches the answers are about, sorted.
        answers: by holder.
        byzantine: f.
        shift: r, bits that every sketch has lost; None where whole updates were shared, and proved short.
        bound: B, the greatest norm of an update in steps.
        draw: private randomness of the server, the same if it judges again.

    Raises:
        SecureSumFailed: "too-few" answers; "bad-dealer": masks are wrong, so that nothing can be decoded before they
            are dealt anew without the sites blamed; "undecodable": more than E sites lie.
    """
    require_enough(len(answers), dealing.packing.answers_needed, "sites have answered")
    outcome = _settled(dealing, dealers, answers)
    kept = [dealer for dealer in dealers if dealer not in outcome.out]
    holders = tuple(holder for holder in sorted(answers) if holder not in outcome.out)
    # Each contradiction costs two answers and one liar, each liar one and one: what is left suffices.
    packing = replace(dealing.packing, liars=dealing.packing.liars - outcome.num_liars)
    among = Dealing(dealers, packing, dealing.length, ())
    answers_HA = np.stack([answers[holder].products_A for holder in holders])[:, pairs(among, kept)]
    found = assembled(packing, len(kept), dealing.places(holders), answers_HA, draw)
    if found is None:
        raise abort(AbortCode.UNDECODABLE, f"more than {dealing.packing.liars} sites have dealt or answered falsely")
    refused = _reasons(outcome)
    lying = {dealing.members[place] for place in found.liars}
    refused |= dict.fromkeys(lying, "it has answered falsely about products")
    limit, unit = (bound**2, 1.0) if shift is None else (PLAUSIBLE, unit_of(shift))
    for reason, found_at in _worthless(found.gram_NN, byzantine, shift, bound):
        refused |= {kept[place]: reason for place in found_at if kept[place] not in refused}
    places = [place for place, dealer in enumerate(kept) if dealer not in refused]
    return Judged(
        tuple(kept[place] for place in places),
        squared_distances(found.gram_NN[np.ix_(places, places)], limit, unit),
        {site: reason for site, reason in refused.items() if site in dealers},
        tuple(holder for holder in holders if holder not in lying),
        replace(packing, liars=packing.liars - len(lying)),
    )


def _worthless(
    gram_NN: Integers, byzantine: int, shift: int | None, bound: int
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The dealers whose products say that they have dealt no update within the bound, by reason.

    Products of updates that were proved short are exact, so that their squares say it all.
    """
    long = "its update is longer than the clip norm allows"
    if shift is None:
        return ((long, implausible(gram_NN, bound**2, 0)),)
    others = max(0, len(gram_NN) - byzantine - 1)
    strange = "its products with other sketches are none that sketches have"
    return (strange, implausible(gram_NN, PLAUSIBLE, others)), (long, too_long(gram_NN, shift, bound))


def _settled(dealing: Dealing, dealers: tuple[bytes, ...], answers: Mapping[bytes, Products]) -> Outcome:
    holders, packing = sorted(answers), dealing.packing
    places = dealing.places(holders)
    masking = [dealer for dealer in dealing.mask_dealers if dealer in dealers]
    short = Judgement((), ())
    if dealing.width:
        short = judge_shortness(packing, places, np.stack([answers[holder].short_S for holder in holders]))
    degrees = judge_degrees(packing, places, np.stack([answers[holder].degrees_N for holder in holders]))
    masks = judge_masks(packing, places, np.stack([answers[holder].masks_Z for holder in holders]))
    about_shares, about_masks = (
        {(those[dealer], dealing.members[holder]) for dealer, holder in disputes}
        for those, disputes in ((dealers, (*degrees.disputes, *short.disputes)), (masking, masks.disputes))
    )
    bad_masks = [masking[place] for place in masks.bad]
    bad = {*bad_masks, *(dealers[place] for place in (*degrees.bad, *short.bad))}
    outcome = settle(bad, about_shares | about_masks, packing.liars)
    if outcome.num_liars > packing.liars:
        raise abort(AbortCode.UNDECODABLE, f"more than {packing.liars} sites have dealt or answered falsely")
    if bad_masks:
        raise abort(AbortCode.BAD_DEALER, "masks do not add up; the round is tried again without a site", bad_masks)
    if any(holder not in outcome.out for _, holder in about_masks):
        # A dealer left out still has its masks in every answer; here they are wrong in answers that are left in.
        reason = "masks are not what all holders say; of the sites named, at least every other one lies"
        raise abort(AbortCode.BAD_DEALER, f"{reason}, and the round is tried again without them", sorted(outcome.out))
    return outcome


def _reasons(outcome: Outcome) -> dict[bytes, str]:
    reasons = dict.fromkeys(outcome.liars, "what it has dealt or answered contradicts all others")
    for one, other in outcome.pairs:
        for site, against in ((one, other), (other, one)):
            reasons[site] = f"it and site {against.hex()} contradict each other, so that one of them lies"
    return reasons
