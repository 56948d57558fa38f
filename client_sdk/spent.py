"""What this site's updates cost it, where their sum has noise. It is said, and no budget hangs on it."""

from __future__ import annotations

import logging

from ..logs import log_event
from ..privacy.analytics.sessions import DELTA
from ..privacy.renyi import epsilon
from ..privacy.secagg.charges import charge, release
from ..privacy.secagg.descriptor import Noise, SessionDescriptor
from ..privacy.secagg.state import SiteState

log = logging.getLogger(__name__)


def epsilon_of(session: SessionDescriptor) -> float | None:
    """ε of one sum of updates, at δ = 1e-6; None without noise, where no ε holds."""
    return None if session.noise is Noise.NONE else epsilon([release(session)], DELTA)


def log_spent(state: SiteState | None) -> None:
    """Say what a round has cost, before its state is forgotten; nothing where no ε holds.

    Args:
        state: of the latest attempt; None if there was no sum.
    """
    if state is None or charge(state) is None or (spent := epsilon_of(state.descriptor)) is None:
        return
    session = state.descriptor
    log_event(log, "privacy_spent", run=session.run, round=session.round, epsilon=round(spent, 6), delta=DELTA)
