"""The published rosters: one after the other, of active sites only, and the same bytes twice are one."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.clock import ManualClock
from foedus.errors import ConfigError, MessageTooLarge, NotFound, ProtocolError, RunStateError, StoreError
from foedus.privacy.secagg.encoding import listed, number, text
from foedus.privacy.secagg.roster import Roster, signed_roster
from foedus.privacy.secagg.signing import site_id
from foedus.server.journal import verify_journal
from foedus.server.registry import Registry
from foedus.server.rosters import MAX_ROSTER_BYTES, Rosters
from foedus.server.store import Store
from hypothesis import given
from hypothesis import strategies as st

OPERATOR = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
KEYS = {name: name[0].encode() * 32 for name in ("berlin", "paris", "rome")}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "foedus.db")
    yield store
    store.close()


@pytest.fixture
def registry(store):
    registry = Registry(store, ManualClock())
    for number_, (name, key) in enumerate(KEYS.items()):
        secret, _ = registry.invite(name, "site", lifetime_seconds=60, approved=True)
        registry.redeem(secret, request_pem="r", key_sha256=str(number_) * 64, origin="here", signing_key=key)
    return registry


@pytest.fixture
def rosters(store, registry):
    return Rosters(store, ManualClock(), registry, "hearts")


def signed(version, *names, federation="hearts"):
    return signed_roster(OPERATOR, federation, version, tuple(KEYS[name] for name in names)).to_bytes()


def events(store):
    return [
        json.loads(r["fields"]) for r in store.query("SELECT fields FROM events WHERE name LIKE 'roster%' ORDER BY seq")
    ]


def test_versions_follow_one_another_and_stay(rosters, store):
    assert rosters.latest() is None
    with pytest.raises(NotFound, match="version 1"):
        rosters.roster(1)
    first, second = signed(1, "berlin", "paris"), signed(2, "berlin", "paris", "rome")
    assert rosters.publish(first).version == 1
    assert rosters.publish(second).version == 2
    assert rosters.latest().to_bytes() == second
    assert rosters.roster(1).to_bytes() == first
    assert rosters.roster(1).public_keys == tuple(sorted((KEYS["berlin"], KEYS["paris"]), key=site_id))
    assert [(e["version"], e["sites"], e["sha256"]) for e in events(store)] == [
        (1, 2, Roster.from_bytes(first).digest.hex()),
        (2, 3, Roster.from_bytes(second).digest.hex()),
    ]
    verify_journal(store)


def test_the_newest_once_more_is_answered_as_done_and_an_older_one_is_not(rosters, registry, store):
    first, second = signed(1, "berlin"), signed(2, "paris")
    rosters.publish(first)
    registry.change("site", "berlin", "revoke")
    assert rosters.publish(first).version == 1  # as after an answer that was lost
    rosters.publish(second)
    with pytest.raises(RunStateError, match="has version 1, expected 3"):
        rosters.publish(first)
    assert len(events(store)) == 2


@pytest.mark.parametrize("version", [0, 2, 3, 2**63, 2**64 - 1])
def test_the_first_has_version_1(rosters, version, store):
    with pytest.raises(RunStateError, match=f"has version {version}, expected 1"):
        rosters.publish(signed(version, "berlin"))
    assert events(store) == []


def test_another_roster_of_the_same_version_is_refused(rosters):
    rosters.publish(signed(1, "berlin"))
    with pytest.raises(RunStateError, match="has version 1, expected 2"):
        rosters.publish(signed(1, "berlin", "paris"))


def test_of_another_federation(rosters):
    with pytest.raises(ConfigError, match="of federation 'lungs', expected 'hearts'"):
        rosters.publish(signed(1, "berlin", federation="lungs"))


@pytest.mark.adversarial
@pytest.mark.parametrize("action", ["suspend", "revoke"])
def test_a_key_of_a_site_that_is_not_active_is_refused_by_its_id(rosters, registry, action):
    registry.change("site", "paris", action)
    with pytest.raises(RunStateError, match=site_id(KEYS["paris"]).hex()):
        rosters.publish(signed(1, "berlin", "paris"))
    assert rosters.latest() is None
    rosters.publish(signed(1, "berlin"))


@pytest.mark.adversarial
def test_a_key_of_nobody_is_refused(rosters):
    stranger = signed_roster(OPERATOR, "hearts", 1, (b"x" * 32,))
    with pytest.raises(RunStateError, match=site_id(b"x" * 32).hex()):
        rosters.publish(stranger.to_bytes())


def test_an_empty_roster_ends_all_secure_sums(rosters):
    rosters.publish(signed(1, "berlin"))
    assert rosters.publish(signed(2)).public_keys == ()


@pytest.mark.adversarial
def test_what_is_no_roster(rosters, store):
    good = signed(1, "berlin", "paris")
    backwards = tuple(sorted((KEYS["berlin"], KEYS["paris"]), key=site_id, reverse=True))
    twice = (KEYS["berlin"], KEYS["berlin"])
    wrong_order = (
        text("hearts") + number(1, 8) + listed(backwards) + bytes(64),
        text("hearts") + number(1, 8) + listed(twice) + bytes(64),
    )
    for data in (b"", good[:-1], good + b"\0", *wrong_order, number(255, 1) * 300):
        with pytest.raises(ProtocolError, match="this is no roster"):
            rosters.publish(data)
    with pytest.raises(MessageTooLarge, match=f"at most {MAX_ROSTER_BYTES}"):
        rosters.publish(bytes(MAX_ROSTER_BYTES + 1))
    assert events(store) == []
    assert rosters.publish(good).version == 1


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("empty") / "foedus.db")
    yield Rosters(store, ManualClock(), Registry(store, ManualClock()), "hearts")
    store.close()


@pytest.mark.adversarial
@given(data=st.binary(max_size=400))
def test_noise_is_refused_with_a_typed_error(empty, data):
    with pytest.raises((ProtocolError, ConfigError)):
        empty.publish(data)
    with pytest.raises((ProtocolError, ConfigError)):
        empty.publish(bytes(77) + data[:1])  # 77 zeros are a roster, of a federation without a name


def test_a_publication_that_fails_leaves_nothing(rosters, store):
    with store.transaction("breaking") as db:
        db.execute("DROP TABLE events")
    with pytest.raises(StoreError, match="publishing roster 1: no such table: events"):
        rosters.publish(signed(1, "berlin"))
    assert rosters.latest() is None
