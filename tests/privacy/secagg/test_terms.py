"""What a plan makes of a session: whatever a server takes, sites with the usual policy agree to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.configuration import validate
from foedus.errors import ConfigError
from foedus.plan import Plan
from foedus.privacy.secagg.descriptor import Mode, Noise, SessionDescriptor
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.protectable import require_protectable
from foedus.privacy.secagg.roster import signed_roster
from foedus.privacy.secagg.terms import session_of
from hypothesis import given
from hypothesis import strategies as st

ROSTER = signed_roster(Ed25519PrivateKey.generate(), "hearts", 1, ())
ANY = SumPolicy(modes=frozenset(Mode), unequal_weights=True)
TRUSTING = replace(ANY, colluding_percent=0, colluding_percent_in_groups=0)
SKELLAM = {"noise": "skellam", "noise_multiplier": 1.0}
DIGEST = bytes(32)


def planned(protection: str, num_sites: int, quorum: int | None = None, **changes: object) -> Plan:
    values = {
        "name": "toy",
        "task": "toy",
        "rounds": 1,
        "protection": protection,
        "cohort": {"minimum": num_sites, "quorum": quorum or num_sites},
        "training": {"steps": 1},
    }
    return validate(Plan, {**values, **changes}, "a test")


def described(plan: Plan, num_sites: int | None = None, num_coordinates: int = 1000) -> SessionDescriptor:
    cohort, n = plan.cohort, num_sites or plan.cohort.sites_needed
    return session_of(
        plan,
        quorum=cohort.quorum or n,
        run="run",
        round=1,
        attempt=1,
        roster=ROSTER,
        participants=tuple(number.to_bytes(16, "big") for number in reversed(range(n))),
        num_coordinates=num_coordinates,
        layout_digest=DIGEST,
        model_digest=DIGEST,
        config_digest=DIGEST,
    )


@pytest.mark.parametrize("secure", [{}, SKELLAM, {"noise": "discrete-gaussian", "noise_multiplier": 0.1}])
@pytest.mark.parametrize("num_sites", [5, 7, 10, 11, 12, 20, 30, 57, 100, 256])
def test_masks_are_agreed_to_by_any_number_of_sites(num_sites: int, secure: dict[str, object]) -> None:
    plan = planned("masks", num_sites, secure=secure)
    require_protectable(plan)
    session = described(plan)
    ANY.require(session)
    assert session.needed_survivors == num_sites  # the quorum
    assert session.weighted == (not secure)


@given(
    st.sampled_from(["masks", "groups", "sketch", "shares"]),
    st.integers(5, 64),
    st.integers(0, 12),
    st.integers(0, 3),
    st.sampled_from([0.01, 1.0, 300.0]),
    st.sampled_from([10, 100_000]),
    st.sampled_from(
        [{}, SKELLAM, {"strict": True}, {"group_size": 12}, {"colluders": 1}, {"colluders": 12}, {"min_sites": 9}]
    ),
)
def test_what_a_server_takes_the_usual_policy_agrees_to(
    protection: str,
    num_sites: int,
    away: int,
    f: int,
    clip_norm: float,
    num_coordinates: int,
    secure: dict[str, object],
) -> None:
    rule = {"masks": "mean", "groups": "trimmed-mean", "sketch": "multi-krum", "shares": "geometric-median"}[protection]
    aggregator = {"name": rule} if rule == "mean" else {"name": rule, "f": f}
    quorum = max(1, num_sites - away)
    plan = planned(protection, num_sites, quorum, aggregator=aggregator, secure={**secure, "clip_norm": clip_norm})
    try:
        require_protectable(plan)
    except ConfigError:
        return
    policy = TRUSTING if "colluders" in secure else ANY  # how many may collude is the plan's word then
    policy.require(described(plan, num_coordinates=num_coordinates))


def test_what_a_plan_says_is_in_the_session() -> None:
    secure = {"clip_norm": 2.0, "scale": 64.0, "colluders": 3, "min_sites": 9, **SKELLAM}
    session = described(planned("masks", 12, 10, secure=secure))
    assert (session.mode, session.rule, session.federation) == (Mode.MASKS, "mean", "hearts")
    assert (session.clip_norm, session.scale, session.colluders) == (2.0, 64.0, 3)
    assert (session.noise, session.noise_multiplier, session.weighted) == (Noise.SKELLAM, 1.0, False)
    assert (session.min_sites, session.min_survivors) == (9, 10)
    assert session.deadlines_seconds == (120,) * 5
    assert list(session.participants) == sorted(session.participants)


def test_more_sites_than_are_needed_are_more_colluders() -> None:
    plan = planned("masks", 10)
    assert [described(plan, n).colluders for n in (10, 11, 16)] == [2, 3, 4]
    assert [described(plan, n).min_sites for n in (10, 11, 16)] == [5, 6, 7]


def test_a_plan_with_too_few_sites_beside_colluders_is_refused() -> None:
    with pytest.raises(ConfigError, match="6 sites are asked, of whom 4 may collude, and sites expect 3 others"):
        require_protectable(planned("masks", 6, secure={"colluders": 4}))
    require_protectable(planned("masks", 7, secure={"colluders": 4}))
