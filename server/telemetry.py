"""What the server counts, as Prometheus metrics in a registry of its own.

Labels are bounded: sites are those enrolled, and every other label takes values from a list in
the code. ``docs/operations.md`` explains each metric; a test holds the two together.
"""

from __future__ import annotations

import platform
from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from ..errors import error_classes
from ..protos.v1 import enrolment_pb2, operations_pb2, session_pb2, transfer_pb2

OTHER = "other"
OUTCOMES = ("committed", "failed")
SITE_STATES = ("invited", "pending", "active", "suspended", "revoked", "connected")
DIRECTIONS = ("down", "up")
METHODS = frozenset(
    f"/{service.full_name}/{method.name}"
    for schema in (enrolment_pb2, operations_pb2, session_pb2, transfer_pb2)
    for service in schema.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)

_ROUND_BUCKETS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
_RPC_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Every metric of one server.

    Attributes:
        rounds: ended rounds, by outcome.
        round_duration: seconds from when a round was due until it was evaluated or failed; waiting for sites counts.
        round_phase_duration: seconds of one phase of it, by phase.
        updates: what became of the updates asked for, by verdict and error code ("" if none).
        updates_left_out: updates that were accepted and that the rule then left out, by aggregator.
        update_bytes: model and update bytes moved, by direction as a site sees it.
        sites: sites by state; connected ones are counted again under "connected".
        site_rejection_rate: exponentially weighted share of the rounds that rejected a site's update.
        site_last_seen: Unix time of a site's last sign of life.
        certificate_expiry: Unix time at which a site's certificate ends.
        rpc_duration: seconds per call, by method. ``Session/Open`` lasts as long as a site is connected.
        build_info: always 1; the version is in its labels.
    """

    registry: CollectorRegistry
    rounds: Counter
    round_duration: Histogram
    round_phase_duration: Histogram
    updates: Counter
    updates_left_out: Counter
    update_bytes: Counter
    sites: Gauge
    site_rejection_rate: Gauge
    site_last_seen: Gauge
    certificate_expiry: Gauge
    rpc_duration: Histogram
    build_info: Gauge

    def round_ended(self, outcome: str, seconds: float) -> None:
        """Count a round that was "committed" or has "failed"."""
        self.rounds.labels(outcome if outcome in OUTCOMES else OTHER).inc()
        self.round_duration.observe(seconds)

    def phase_ended(self, phase: str, seconds: float) -> None:
        """Time one phase of a round, "collect", "aggregate" or "evaluate"."""
        self.round_phase_duration.labels(phase).observe(seconds)

    def update_decided(self, verdict: str, code: str = "") -> None:
        """Count what became of one update; ``code`` is the error class that a refusal names."""
        self.updates.labels(verdict, code if not code or code in error_classes() else OTHER).inc()

    def left_out(self, aggregator: str, number: int) -> None:
        """Count the updates that a round's rule left out; which rules there are, the installed packages say."""
        self.updates_left_out.labels(aggregator).inc(number)

    def bytes_moved(self, direction: str, num_bytes: int) -> None:
        """Count bytes that went "down" to a site or came "up" from it."""
        self.update_bytes.labels(direction).inc(num_bytes)

    def sites_are(self, states: Iterable[str], num_connected: int) -> None:
        """Set the number of sites in each state, from the state of each."""
        tally = Tally(states)
        tally["connected"] = num_connected
        for state in SITE_STATES:
            self.sites.labels(state).set(tally[state])

    def site_stands(self, site: str, rejection_rate: float) -> None:
        """Set how often an enrolled site's updates have been rejected."""
        self.site_rejection_rate.labels(site).set(rejection_rate)

    def site_seen(self, site: str, now: float) -> None:
        """Record a sign of life from an enrolled site."""
        self.site_last_seen.labels(site).set(now)

    def certificate_issued(self, site: str, expires: float) -> None:
        """Record when a site's certificate ends."""
        self.certificate_expiry.labels(site).set(expires)

    def site_gone(self, site: str) -> None:
        """Forget a site that was revoked, so that no alert rings for it for ever."""
        for gauge in (self.site_rejection_rate, self.site_last_seen, self.certificate_expiry):
            gauge.remove_by_labels({"site": site})

    def rpc_ended(self, method: str, seconds: float) -> None:
        """Time one call. A method of no foedus service, which a stranger may invent, counts as "other"."""
        self.rpc_duration.labels(method if method in METHODS else OTHER).observe(seconds)

    def page(self) -> bytes:
        """All of it in Prometheus's text format."""
        return generate_latest(self.registry)


def new_metrics(version: str) -> Metrics:
    """The metrics of one server, all at zero, in a registry that nothing else shares."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    metrics = Metrics(
        registry=registry,
        rounds=Counter("foedus_rounds_total", "Rounds that ended.", ["outcome"], registry=registry),
        round_duration=Histogram(
            "foedus_round_duration_seconds",
            "From when a round was due until it was evaluated, or failed.",
            buckets=_ROUND_BUCKETS,
            registry=registry,
        ),
        round_phase_duration=Histogram(
            "foedus_round_phase_duration_seconds",
            "One phase of a round.",
            ["phase"],
            buckets=_ROUND_BUCKETS,
            registry=registry,
        ),
        updates=Counter(
            "foedus_updates_total",
            "Updates asked for, by what became of them.",
            ["verdict", "reason"],
            registry=registry,
        ),
        updates_left_out=Counter(
            "foedus_updates_left_out_total", "Updates that the rule left out.", ["aggregator"], registry=registry
        ),
        update_bytes=Counter(
            "foedus_update_bytes_total", "Model and update bytes moved.", ["direction"], registry=registry
        ),
        sites=Gauge("foedus_sites", "Sites by state.", ["state"], registry=registry),
        site_rejection_rate=Gauge(
            "foedus_site_rejection_rate",
            "The weighted share of the rounds that rejected a site's update.",
            ["site"],
            registry=registry,
        ),
        site_last_seen=Gauge(
            "foedus_site_last_seen_timestamp_seconds", "A site's last sign of life.", ["site"], registry=registry
        ),
        certificate_expiry=Gauge(
            "foedus_certificate_expiry_timestamp_seconds", "The end of a certificate.", ["site"], registry=registry
        ),
        rpc_duration=Histogram(
            "foedus_rpc_duration_seconds", "Calls served.", ["method"], buckets=_RPC_BUCKETS, registry=registry
        ),
        build_info=Gauge(
            "foedus_build_info", "The running version; always 1.", ["version", "python"], registry=registry
        ),
    )
    metrics.build_info.labels(version, platform.python_version()).set(1)
    # Series that exist from the start let a rate() see the first increment.
    for outcome in OUTCOMES:
        metrics.rounds.labels(outcome)
    for direction in DIRECTIONS:
        metrics.update_bytes.labels(direction)
    metrics.sites_are((), 0)
    return metrics
