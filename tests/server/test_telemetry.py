"""Metrics: names, labels that stay bounded, values as counted."""

from __future__ import annotations

import re

import pytest
from foedus.server.telemetry import METHODS, Metrics, new_metrics
from prometheus_client.parser import text_string_to_metric_families

# The public names; changing one is a breaking change.
NAMES = {
    "foedus_rounds_total": {"outcome"},
    "foedus_round_duration_seconds": set(),
    "foedus_round_phase_duration_seconds": {"phase"},
    "foedus_updates_total": {"verdict", "reason"},
    "foedus_updates_left_out_total": {"aggregator"},
    "foedus_update_bytes_total": {"direction"},
    "foedus_sites": {"state"},
    "foedus_site_rejection_rate": {"site"},
    "foedus_site_last_seen_timestamp_seconds": {"site"},
    "foedus_certificate_expiry_timestamp_seconds": {"site"},
    "foedus_rpc_duration_seconds": {"method"},
    "foedus_build_info": {"version", "python"},
}


@pytest.fixture
def metrics() -> Metrics:
    return new_metrics("1.2.3")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """As a scraper would read it."""
    for family in text_string_to_metric_families(metrics.page().decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def test_the_public_names_and_labels(metrics: Metrics) -> None:
    metrics.round_ended("committed", 1)
    metrics.phase_ended("collect", 1)
    metrics.update_decided("accepted")
    metrics.left_out("krum", 1)
    metrics.site_stands("a", 0.5)
    metrics.site_seen("a", 1)
    metrics.certificate_issued("a", 1)
    metrics.rpc_ended("/foedus.v1.Session/Open", 1)
    seen: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for sample in family.samples:
            if sample.name.startswith("foedus_") and not sample.name.endswith("_created"):
                name = re.sub("_(bucket|sum|count)$", "", sample.name)
                seen.setdefault(name, set()).update(set(sample.labels) - {"le"})
    assert seen == NAMES


def test_rounds(metrics: Metrics) -> None:
    assert value(metrics, "foedus_rounds_total", outcome="failed") == 0
    metrics.round_ended("committed", 3)
    metrics.round_ended("committed", 40)
    metrics.round_ended("failed", 1)
    metrics.round_ended("exploded", 1)
    assert value(metrics, "foedus_rounds_total", outcome="committed") == 2
    assert value(metrics, "foedus_rounds_total", outcome="failed") == 1
    assert value(metrics, "foedus_rounds_total", outcome="other") == 1
    assert value(metrics, "foedus_round_duration_seconds_sum") == 45
    assert value(metrics, "foedus_round_duration_seconds_bucket", le="5.0") == 3
    metrics.phase_ended("aggregate", 2)
    assert value(metrics, "foedus_round_phase_duration_seconds_sum", phase="aggregate") == 2


def test_updates_carry_a_verdict_and_a_known_reason(metrics: Metrics) -> None:
    metrics.update_decided("accepted")
    metrics.update_decided("rejected", "InvalidUpdate")
    metrics.update_decided("refused", "a sentence that a site made up")
    assert value(metrics, "foedus_updates_total", verdict="accepted", reason="") == 1
    assert value(metrics, "foedus_updates_total", verdict="rejected", reason="InvalidUpdate") == 1
    assert value(metrics, "foedus_updates_total", verdict="refused", reason="other") == 1


def test_what_a_rule_left_out_was_accepted_before(metrics: Metrics) -> None:
    metrics.update_decided("accepted")
    metrics.left_out("krum", 0)
    assert value(metrics, "foedus_updates_left_out_total", aggregator="krum") == 0
    metrics.left_out("krum", 3)
    assert value(metrics, "foedus_updates_left_out_total", aggregator="krum") == 3
    assert value(metrics, "foedus_updates_total", verdict="accepted", reason="") == 1


def test_bytes(metrics: Metrics) -> None:
    metrics.bytes_moved("down", 100)
    metrics.bytes_moved("down", 11)
    assert value(metrics, "foedus_update_bytes_total", direction="down") == 111
    assert value(metrics, "foedus_update_bytes_total", direction="up") == 0


def test_sites_by_state_fall_back_to_zero(metrics: Metrics) -> None:
    metrics.sites_are(["active", "active", "pending"], 1)
    metrics.sites_are(["active"], 1)
    assert value(metrics, "foedus_sites", state="active") == 1
    assert value(metrics, "foedus_sites", state="pending") == 0
    assert value(metrics, "foedus_sites", state="connected") == 1


def test_a_site_that_is_gone_leaves_no_series(metrics: Metrics) -> None:
    for site in ("a", "b"):
        metrics.site_stands(site, 0.25)
        metrics.site_seen(site, 5)
        metrics.certificate_issued(site, 9)
    metrics.site_gone("a")
    metrics.site_gone("never-seen")
    assert value(metrics, "foedus_site_rejection_rate", site="a") is None
    assert value(metrics, "foedus_site_rejection_rate", site="b") == 0.25
    assert value(metrics, "foedus_site_last_seen_timestamp_seconds", site="a") is None
    assert value(metrics, "foedus_certificate_expiry_timestamp_seconds", site="a") is None
    assert value(metrics, "foedus_site_last_seen_timestamp_seconds", site="b") == 5
    assert value(metrics, "foedus_certificate_expiry_timestamp_seconds", site="b") == 9


def test_a_stranger_cannot_invent_series(metrics: Metrics) -> None:
    assert "/foedus.v1.Transfer/Upload" in METHODS
    for number in range(100):
        metrics.rpc_ended(f"/made.up/Method{number}", 0.1)
    metrics.rpc_ended("/foedus.v1.Transfer/Upload", 0.1)
    assert value(metrics, "foedus_rpc_duration_seconds_count", method="other") == 100
    assert value(metrics, "foedus_rpc_duration_seconds_count", method="/foedus.v1.Transfer/Upload") == 1


def test_two_servers_in_one_process_share_nothing(metrics: Metrics) -> None:
    other = new_metrics("1.2.3")
    metrics.bytes_moved("up", 5)
    assert value(other, "foedus_update_bytes_total", direction="up") == 0


def test_the_version_is_a_label(metrics: Metrics) -> None:
    assert b'foedus_build_info{python="' in metrics.page()
    assert b'version="1.2.3"} 1.0' in metrics.page()
    assert b"process_resident_memory_bytes" in metrics.page()
