"""Gauges about sites follow the registry, the sessions and a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from foedus.clock import ManualClock
from foedus.protos.messages import Hello
from foedus.server.gauges import metrics_page, observe_sites
from foedus.server.registry import Registry
from foedus.server.sessions import LiveSession, Sessions
from foedus.server.store import Store
from foedus.server.telemetry import new_metrics


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Any]:
    """As much of a federation as the gauges look at."""
    clock = ManualClock(1_000.0)
    store = Store(tmp_path / "foedus.db")
    registry = Registry(store, clock)
    registry.add("olga", "operator", key_sha256="0", expires=9_000.0)
    for number, name in enumerate(("a", "b", "c")):
        registry.add(name, "site", key_sha256=str(number), expires=2_000.0 + number)
    registry.saw("b", 700.0)
    registry.invite("d", "site", lifetime_seconds=60.0, approved=False)
    yield SimpleNamespace(registry=registry, sessions=Sessions(), metrics=new_metrics("0"), clock=clock)
    store.close()


def value(fed: Any, name: str, **labels: str) -> float | None:
    return fed.metrics.registry.get_sample_value(name, labels)


async def test_sites_are_counted_by_state_and_operators_are_not(fed: Any) -> None:
    fed.registry.change("site", "c", "suspend")
    await observe_sites(fed)
    counts = {
        s: value(fed, "foedus_sites", state=s) for s in ("invited", "active", "suspended", "revoked", "connected")
    }
    assert counts == {"invited": 1, "active": 2, "suspended": 1, "revoked": 0, "connected": 0}
    assert value(fed, "foedus_certificate_expiry_timestamp_seconds", site="b") == 2_001
    assert value(fed, "foedus_certificate_expiry_timestamp_seconds", site="olga") is None


async def test_last_seen_is_the_sessions_or_else_the_registrys(fed: Any) -> None:
    fed.sessions.open(LiveSession("a", Hello("0.1.0", (), 0.0), since=900.0, last_seen=950.0))
    await observe_sites(fed)
    assert value(fed, "foedus_site_last_seen_timestamp_seconds", site="a") == 950
    assert value(fed, "foedus_site_last_seen_timestamp_seconds", site="b") == 700
    assert value(fed, "foedus_site_last_seen_timestamp_seconds", site="c") is None
    assert value(fed, "foedus_sites", state="connected") == 1


async def test_a_revoked_site_stays_forgotten(fed: Any) -> None:
    await observe_sites(fed)
    fed.registry.change("site", "b", "revoke")
    fed.metrics.site_gone("b")
    await observe_sites(fed)
    assert value(fed, "foedus_sites", state="revoked") == 1
    assert value(fed, "foedus_site_last_seen_timestamp_seconds", site="b") is None
    assert value(fed, "foedus_certificate_expiry_timestamp_seconds", site="b") is None


async def test_the_page_is_made_on_another_thread_from_the_loops_database(fed: Any) -> None:
    page = await asyncio.to_thread(metrics_page, fed, asyncio.get_running_loop())
    assert b'foedus_sites{state="active"} 3.0' in page
