"""What a round's secure sum is about: from the plan and the cohort to the descriptor that every site checks."""

from __future__ import annotations

from ..layout import Layout
from ..plan import Plan
from ..privacy.secagg.descriptor import SessionDescriptor
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.terms import session_of
from ..protos.config_digest import config_sha256
from ..protos.messages import Assignment
from .history import Round


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
    return session_of(
        plan,
        quorum=round.quorum,
        run=round.run,
        round=round.number,
        attempt=round.attempt,
        roster=roster,
        participants=participants,
        num_coordinates=layout.num_trainable,
        layout_digest=bytes.fromhex(layout.digest),
        model_digest=bytes.fromhex(round.base_sha256),
        config_digest=config_sha256(order),
    )
