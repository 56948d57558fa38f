"""What a secure sum is to those whose data are in it: an event, from the noise that its session has for certain.

Counted is the noise of n_min - c sites: those who collude know theirs, and more than n_min may not be there.
"""

from __future__ import annotations

import math

from ...errors import ConfigError
from ..events import DiscreteGaussianSum, Event, NoiselessRelease, SkellamSum
from .descriptor import Noise, SessionDescriptor
from .noise import site_variance, total_variance
from .quantise import norm_bound
from .state import SiteState

_ROUNDED_NORM = 1 + 2.0**-20  # the norm is compared with its bound in doubles


def release(session: SessionDescriptor) -> Event:
    """What opening this sum of updates is to each site in it: whoever sees it, might the site have sent nothing?

    Of groups, pass the session of the site's group.

    Raises:
        ConfigError: the session is one of whole numbers: what they mean for a person, only the query knows.
    """
    if session.whole:
        raise ConfigError("what a sum of whole numbers tells of a person is known from its query alone")
    bound = norm_bound(session.scale, session.clip_norm, session.num_coordinates) * _ROUNDED_NORM
    return released(session, l2=bound, l1=bound * min(math.sqrt(session.num_coordinates), bound))


def charge(state: SiteState) -> Event | None:
    """What a session of updates has cost this site: its release, from the moment that there are masked words.

    It needs neither this site's acknowledgement nor its shares to open a sum that it is in, so it can never know that
    the sum was not opened. Of the attempts at one round, one at most can be: the costliest is the round's.
    """
    return release(state.descriptor) if state.masked is not None else None


def released(session: SessionDescriptor, *, l2: float, l1: float) -> Event:
    """One release of a session's sum, to which the protected one adds at most ``l2`` and ``l1`` in norm, in steps."""
    if session.noise is Noise.NONE:
        return NoiselessRelease()
    if session.noise is Noise.SKELLAM:
        return SkellamSum(l2_sensitivity=l2, l1_sensitivity=l1, variance=float(total_variance(session)))
    return DiscreteGaussianSum(
        l2_sensitivity=l2,
        site_variance=float(site_variance(session)),
        num_sites=session.honest_survivors,
        num_coordinates=session.num_coordinates,
    )
