"""A session over groups is a session of masks for each group, by itself; here is which.

Who is with whom follows from the offer alone, before any key: no site has to be told, and the server has no say in
whose acknowledgements and shares a group's sum needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from .descriptor import SessionDescriptor
from .encoding import number, text
from .graph import shuffled
from .grouping import colluders_in_group, cut
from .keys import PROTOCOL
from .thresholds import share_threshold


def groups_of(session: SessionDescriptor) -> tuple[tuple[bytes, ...], ...]:
    """The groups, each sorted: the participants in an order drawn from the run's name, cut.

    The order is Fisher-Yates, keyed by SHA-256("fl-sa/v1/groups" ‖ federation ‖ run), and ‖ round where groups change
    from round to round. It hangs on nothing else that a session has, so every attempt has the groups of the first.
    """
    drawn_for = text(session.federation) + text(session.run)
    if session.regroups:
        drawn_for += number(session.round, 8)
    seed = hashlib.sha256(PROTOCOL + b"groups" + drawn_for).digest()
    return cut(shuffled(session.participants, seed), session.group_size)


def group_sessions(session: SessionDescriptor) -> tuple[SessionDescriptor, ...]:
    """The session of each group: its sites, its colluders, its threshold; the rest as it was offered.

    The whole session and the group's number take the place of the configuration, as
    SHA-256("fl-sa/v1/group" ‖ sid ‖ number 4): so every key, mask and signature of a group is bound to both, and what
    belongs to a group belongs to no other group, nor to a session that a server could offer by itself.
    """
    sid = session.sid
    among = colluders_in_group(session.num_sites, session.colluders, session.group_size)
    return tuple(
        replace(
            session,
            participants=members,
            config_digest=hashlib.sha256(PROTOCOL + b"group" + sid + number(place, 4)).digest(),
            colluders=among,
            threshold=share_threshold(len(members), among, session.degree),
        )
        for place, members in enumerate(groups_of(session))
    )


def group_session(session: SessionDescriptor, site: bytes) -> SessionDescriptor:
    """The session of the group that a participant is in."""
    return next(group for group in group_sessions(session) if site in group.participants)
