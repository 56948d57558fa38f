"""What this site's updates have cost it, in the log; no budget hangs on it."""

from __future__ import annotations

import logging

from ..logs import log_event
from ..privacy.analytics.sessions import DELTA
from ..privacy.renyi import epsilon
from ..privacy.secagg.charges import charge
from ..privacy.secagg.descriptor import Noise
from ..privacy.secagg.state import SiteState

log = logging.getLogger(__name__)


def log_spent(state: SiteState | None) -> None:
    """Say what the round of a sum with noise has cost, before its state is forgotten: ε of this one sum, at δ = 1e-6.

    Nothing is said of sums without noise, of which there is no finite ε.

    Args:
        state: of the latest attempt; None if there was no sum.
    """
    if state is None or state.descriptor.noise is Noise.NONE or (event := charge(state)) is None:
        return
    session = state.descriptor
    log_event(
        log,
        "privacy_spent",
        run=session.run,
        round=session.round,
        epsilon=round(epsilon([event], DELTA), 6),
        delta=DELTA,
    )
