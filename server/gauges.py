"""Gauges about sites, read off the registry and the open sessions whenever metrics are asked for."""

from __future__ import annotations

import asyncio

from .federation import Federation
from .members import MemberState

READ_SECONDS = 2.0


def metrics_page(fed: Federation, loop: asyncio.AbstractEventLoop) -> bytes:
    """The text of ``/metrics``. Called on a thread of the health pages; the database is the loop's.

    Raises:
        TimeoutError: the loop did not turn within ``READ_SECONDS``.
    """
    asyncio.run_coroutine_threadsafe(observe_sites(fed), loop).result(READ_SECONDS)
    return fed.metrics.page()


async def observe_sites(fed: Federation) -> None:
    """Set every gauge about sites; those of a revoked site are left forgotten."""
    sites = [member for member in fed.registry.members() if member.role == "site"]
    fed.metrics.sites_are((site.state for site in sites), len(fed.sessions))
    for site in sites:
        if site.state is MemberState.REVOKED:
            continue
        fed.metrics.site_stands(site.name, fed.registry.standing(site.name).rejection_rate)
        session = fed.sessions.get(site.name)
        seen = session.last_seen if session is not None else site.last_seen
        if seen is not None:
            fed.metrics.site_seen(site.name, seen)
        if site.certificate_expires is not None:
            fed.metrics.certificate_issued(site.name, site.certificate_expires)
