"""What a query's secure sum is about: from the query and who is asked to the descriptor that every site checks."""

from __future__ import annotations

import math

from ..privacy.analytics.query import Query
from ..privacy.analytics.sessions import session_fields
from ..privacy.secagg.descriptor import SessionDescriptor
from ..privacy.secagg.prg import Suite
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.terms import HONEST_BESIDE_COLLUDERS, masked_terms, usual_colluders
from ..protos.messages import Work


def fewest_sites(query: Query, num_sites: int) -> int:
    """How many of the sites asked must be in the answer."""
    return max(query.min_sites, _colluders(query, num_sites) + HONEST_BESIDE_COLLUDERS, math.ceil(num_sites / 2))


def describe_query(
    query: Query, work: Work, attempt: int, roster: Roster, participants: tuple[bytes, ...]
) -> SessionDescriptor:
    """The session of one attempt at a query.

    Args:
        query: what is asked.
        work: the query as a piece of work; its id stands where the run does.
        attempt: the first is 1.
        roster: signed by the operator.
        participants: the ids of the sites asked, in any order.

    Raises:
        ConfigError: there can be no such session; the reason says which of its numbers is out of range.
    """
    n = len(participants)
    colluders = _colluders(query, n)
    terms = masked_terms(n, colluders, query.min_sites)
    return SessionDescriptor(
        suite=Suite.AES_256_CTR,
        federation=roster.federation,
        run=work.run,
        round=work.round,
        attempt=attempt,
        roster_digest=roster.digest,
        participants=tuple(sorted(participants)),
        degree=terms.degree,
        threshold=terms.threshold,
        dropouts=terms.dropouts,
        colluders=colluders,
        min_sites=max(query.min_sites, colluders + HONEST_BESIDE_COLLUDERS),
        min_survivors=terms.min_survivors,
        deadlines_seconds=(math.ceil(query.deadline_seconds),) * 5,
        **session_fields(query),
    )


def _colluders(query: Query, num_sites: int) -> int:
    return usual_colluders(num_sites) if query.colluders is None else query.colluders
