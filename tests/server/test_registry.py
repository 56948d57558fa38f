"""Membership: one-time secrets, states, and keys that are known by their digest."""

from __future__ import annotations

import hmac
import json

import pytest
from foedus.clock import ManualClock
from foedus.errors import AccessDenied, EnrolmentError, NotApproved, NotFound, RunStateError, TokenRefused
from foedus.privacy.identity import Identity
from foedus.privacy.secagg.signing import site_id
from foedus.privacy.secrets import Secret, new_token
from foedus.server.journal import verify_journal
from foedus.server.members import MemberState
from foedus.server.registry import Registry, Standing, judge_sites
from foedus.server.store import Store

KEY, OTHER = "1" * 64, "2" * 64
SIGNS, SIGNS_TOO = b"1" * 32, b"2" * 32
BERLIN = Identity("hearts", "site", "berlin")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "foedus.db")
    yield store
    store.close()


@pytest.fixture
def registry(store, clock):
    return Registry(store, clock)


def invite(registry, name="berlin", *, approved=True, lifetime=60.0):
    return registry.invite(name, "site", lifetime_seconds=lifetime, approved=approved)[0]


def redeem(registry, secret, key=KEY, signing_key=b""):
    return registry.redeem(
        secret, request_pem="a request", key_sha256=key, origin="ipv4:10.0.0.1:5", signing_key=signing_key
    )


def test_an_approved_invitation_admits_at_once(registry):
    assert registry.members() == []
    secret = invite(registry)
    assert [(m.name, m.state) for m in registry.members()] == [("berlin", "invited")]
    member = redeem(registry, secret)
    assert (member.state, member.key_sha256, member.origin) == ("active", KEY, "ipv4:10.0.0.1:5")
    registry.authorise(BERLIN, KEY)


def test_others_wait_for_the_operator(registry):
    secret = invite(registry, approved=False)
    assert redeem(registry, secret).state is MemberState.PENDING
    with pytest.raises(NotApproved, match="is pending"):
        registry.authorise(BERLIN, KEY)
    registry.change("site", "berlin", "approve")
    registry.authorise(BERLIN, KEY)
    assert redeem(registry, secret).state is MemberState.ACTIVE


@pytest.mark.adversarial
def test_a_secret_is_bound_to_the_first_key(registry):
    secret = invite(registry)
    redeem(registry, secret)
    for _ in range(2):
        assert redeem(registry, secret).key_sha256 == KEY  # asking again is harmless
        with pytest.raises(TokenRefused, match="already used with another key"):
            redeem(registry, secret, OTHER)
    assert registry.member("site", "berlin").key_sha256 == KEY


def test_an_invitation_ends_exactly_when_it_says(registry, clock):
    first, second = invite(registry, "berlin"), invite(registry, "paris")
    clock.advance(59.999)
    redeem(registry, first)
    clock.advance(0.001)
    with pytest.raises(TokenRefused, match="has expired"):
        redeem(registry, second)
    assert [m.name for m in registry.members()] == ["berlin"]
    redeem(registry, first)  # a used one still fetches the decision


def test_an_expired_invitation_fetches_the_first_certificate_and_no_other(registry, clock):
    approved, late = invite(registry), invite(registry, "paris", approved=False)
    redeem(registry, approved)
    redeem(registry, late)
    registry.certified("site", "berlin", key_sha256=KEY, expires=9e9)
    clock.advance(59.0)
    redeem(registry, approved)  # the answer may have been lost
    clock.advance(1.0)
    with pytest.raises(TokenRefused, match="was issued"):
        redeem(registry, approved)
    registry.change("site", "paris", "approve")
    assert redeem(registry, late).state is MemberState.ACTIVE
    registry.certified("site", "paris", key_sha256=KEY, expires=9e9)
    with pytest.raises(TokenRefused, match="was issued"):
        redeem(registry, late)


@pytest.mark.adversarial
@pytest.mark.parametrize("text", ["", "guessed", "\x00", "ü" * 100, "%", "' OR 1=1 --"])
def test_wrong_secrets(registry, text):
    invite(registry)
    with pytest.raises(TokenRefused, match="does not know"):
        redeem(registry, Secret(text))


@pytest.mark.adversarial
def test_secrets_are_compared_in_constant_time_with_every_invitation(registry, monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    secrets = [invite(registry, name) for name in ("a", "b", "c")]
    redeem(registry, secrets[0])
    assert len(compared) == 3
    with pytest.raises(TokenRefused):
        redeem(registry, new_token())
    assert len(compared) == 6


@pytest.mark.adversarial
def test_no_secret_is_in_the_files_of_the_database(registry, store, tmp_path):
    secrets = [invite(registry, name) for name in ("a", "b")]
    redeem(registry, secrets[0])
    files = [path for path in tmp_path.iterdir() if path.name.startswith("foedus.db")]
    assert len(files) >= 2  # the write-ahead log holds the newest rows
    stored = b"".join(path.read_bytes() for path in files)
    assert b"berlin" in stored or b"site_invited" in stored
    for secret in secrets:
        assert secret.reveal_bytes() not in stored


@pytest.mark.adversarial
def test_a_newer_invitation_voids_the_older(registry):
    """Else a forgotten one could later replace the member, or undo a suspension."""
    old = invite(registry)
    new = invite(registry)
    with pytest.raises(TokenRefused, match="does not know"):
        redeem(registry, old)
    redeem(registry, new)
    registry.change("site", "berlin", "suspend")
    with pytest.raises(TokenRefused):
        redeem(registry, old, OTHER)
    assert registry.member("site", "berlin").state is MemberState.SUSPENDED


def test_an_invitation_of_another_role_or_name_stands(registry):
    site = invite(registry)
    registry.invite("berlin", "operator", lifetime_seconds=60, approved=True)
    invite(registry, "paris")
    assert redeem(registry, site).name == "berlin"


def test_a_living_name_is_not_invited_again(registry):
    redeem(registry, invite(registry))
    for state in ("active", "suspended"):
        with pytest.raises(RunStateError, match=state):
            invite(registry)
        if state == "active":
            registry.change("site", "berlin", "suspend")


@pytest.mark.adversarial
def test_after_revocation_only_a_new_invitation_and_the_new_key_count(registry):
    old = invite(registry)
    redeem(registry, old)
    registry.change("site", "berlin", "revoke")
    with pytest.raises(NotApproved, match="revoked"):
        registry.authorise(BERLIN, KEY)
    with pytest.raises(NotApproved, match="revoked"):
        redeem(registry, old)
    new = invite(registry)
    redeem(registry, new, OTHER)
    registry.authorise(BERLIN, OTHER)
    with pytest.raises(AccessDenied, match="another key"):
        registry.authorise(BERLIN, KEY)
    with pytest.raises(TokenRefused, match="newer invitation"):
        redeem(registry, old)


def test_strangers_and_other_roles_are_no_members(registry):
    redeem(registry, invite(registry))
    for identity in (Identity("hearts", "operator", "berlin"), Identity("hearts", "site", "paris")):
        with pytest.raises(AccessDenied, match="is not a member"):
            registry.authorise(identity, KEY)
    with pytest.raises(NotFound):
        registry.change("site", "paris", "approve")


ALLOWED = {
    ("pending", "approve"): "active",
    ("active", "approve"): "active",
    ("suspended", "suspend"): "suspended",
    ("revoked", "revoke"): "revoked",
    ("suspended", "approve"): "active",
    ("active", "suspend"): "suspended",
    ("pending", "revoke"): "revoked",
    ("active", "revoke"): "revoked",
    ("suspended", "revoke"): "revoked",
}


@pytest.mark.parametrize("state", ["pending", "active", "suspended", "revoked"])
@pytest.mark.parametrize("action", ["approve", "suspend", "revoke", "promote"])
def test_changes_of_state(registry, state, action):
    redeem(registry, invite(registry, approved=False))
    for step in {"pending": [], "active": ["approve"], "suspended": ["approve", "suspend"], "revoked": ["revoke"]}[
        state
    ]:
        registry.change("site", "berlin", step)
    if (state, action) in ALLOWED:
        assert registry.change("site", "berlin", action).state == ALLOWED[state, action]
    else:
        with pytest.raises(RunStateError):
            registry.change("site", "berlin", action)
        assert registry.member("site", "berlin").state == state


def test_every_change_is_in_the_journal(registry, store):
    redeem(registry, invite(registry))
    registry.change("site", "berlin", "suspend")
    registry.change("site", "berlin", "suspend")  # changes nothing
    registry.change("site", "berlin", "revoke")
    names = [row["name"] for row in store.query("SELECT name FROM events ORDER BY seq")]
    assert names == ["site_invited", "site_joined", "site_suspended", "site_revoked"]
    assert verify_journal(store)[0] == 4


def judge(registry, store, rejected, times=1, name="berlin"):
    for _ in range(times):
        with store.transaction("a test") as db:
            judge_sites(db, {name: rejected}, memory=0.5)
    return registry.standing(name)


def test_a_standing(registry, store):
    assert registry.standing("nobody") == Standing(0.0, 0)
    redeem(registry, invite(registry))
    assert registry.standing("berlin") == Standing(0.0, 0)
    assert judge(registry, store, True, times=2) == Standing(0.75, 2)
    assert judge(registry, store, False) == Standing(0.375, 3)


def test_whoever_is_approved_begins_anew(registry, store):
    redeem(registry, invite(registry))
    judge(registry, store, True, times=3)
    registry.change("site", "berlin", "approve")  # it is active: that changes nothing
    assert registry.standing("berlin") == Standing(0.875, 3)
    registry.change("site", "berlin", "suspend")
    assert registry.standing("berlin") == Standing(0.875, 3)
    registry.change("site", "berlin", "approve")
    assert registry.standing("berlin") == Standing(0.0, 0)


def test_a_new_member_of_an_old_name_begins_anew(registry, store):
    redeem(registry, invite(registry))
    judge(registry, store, True)
    registry.change("site", "berlin", "revoke")
    redeem(registry, invite(registry), OTHER)
    assert registry.standing("berlin") == Standing(0.0, 0)


def test_who_is_distrusted(registry, store):
    for name, rounds in (("paris", 1), ("berlin", 2), ("oslo", 2), ("rome", 2)):
        redeem(registry, invite(registry, name))
        judge(registry, store, name != "rome", rounds, name)
    registry.change("site", "oslo", "suspend")
    assert registry.distrusted(0.4, 2) == {"berlin": Standing(0.75, 2)}
    assert list(registry.distrusted(0.4, 1)) == ["berlin", "paris"]
    assert registry.distrusted(0.75, 1) == {}  # to exceed is more than to reach


def test_the_reason_of_a_suspension_is_journalled(registry, store):
    redeem(registry, invite(registry))
    registry.change("site", "berlin", "suspend", "its rejection rate is 0.9")
    registry.change("site", "berlin", "approve")
    (first, second) = [json.loads(r["fields"]) for r in store.query("SELECT fields FROM events ORDER BY seq")][-2:]
    assert first == {"name": "berlin", "reason": "its rejection rate is 0.9"}
    assert second == {"name": "berlin"}


def test_signing_keys_are_those_of_active_sites(registry):
    redeem(registry, invite(registry), KEY, SIGNS)
    redeem(registry, invite(registry, "paris", approved=False), OTHER, SIGNS_TOO)
    redeem(registry, invite(registry, "rome"), "3" * 64)
    assert registry.member("site", "berlin").signing_key == SIGNS
    assert registry.member("site", "rome").signing_key == b""
    assert registry.signing_keys() == {"berlin": SIGNS}
    registry.change("site", "paris", "approve")
    assert registry.signing_keys() == {"berlin": SIGNS, "paris": SIGNS_TOO}
    registry.change("site", "berlin", "suspend")
    assert registry.signing_keys() == {"paris": SIGNS_TOO}


def test_the_site_of_an_id(registry):
    redeem(registry, invite(registry), KEY, SIGNS)
    assert registry.site_of(site_id(SIGNS)) == "berlin"
    registry.change("site", "berlin", "revoke")
    assert registry.site_of(site_id(SIGNS)) == "berlin"  # one that was thrown out can still be named
    redeem(registry, invite(registry, "zurich"), OTHER, SIGNS)
    assert registry.site_of(site_id(SIGNS)) == "zurich"
    with pytest.raises(NotFound, match=site_id(SIGNS_TOO).hex()):
        registry.site_of(site_id(SIGNS_TOO))


@pytest.mark.adversarial
@pytest.mark.parametrize("state", ["pending", "active", "suspended"])
def test_the_signing_key_of_another_living_member_is_refused(registry, state):
    redeem(registry, invite(registry, approved=state != "pending"), KEY, SIGNS)
    if state == "suspended":
        registry.change("site", "berlin", "suspend")
    secret = invite(registry, "paris")
    with pytest.raises(EnrolmentError, match=f"already signs with the key {site_id(SIGNS).hex()}") as caught:
        redeem(registry, secret, OTHER, SIGNS)
    assert "berlin" not in str(caught.value)  # sites do not learn each other's names
    assert redeem(registry, secret, OTHER, SIGNS_TOO).name == "paris"  # the invitation is not spent


@pytest.mark.adversarial
@pytest.mark.parametrize("key", [b"1", b"1" * 31, b"1" * 33, b"1" * 100_000])
def test_a_signing_key_of_another_length_is_refused(registry, key):
    secret = invite(registry)
    with pytest.raises(EnrolmentError, match=f"has {len(key)} bytes, expected 32"):
        redeem(registry, secret, KEY, key)
    assert registry.members()[0].state is MemberState.INVITED


@pytest.mark.adversarial
def test_a_used_invitation_replaces_no_signing_key(registry):
    """Whoever finds it, with the request that was sent, must not be able to put a key in the site's place."""
    secret = invite(registry)
    redeem(registry, secret, KEY, SIGNS)
    with pytest.raises(TokenRefused, match="another signing key"):
        redeem(registry, secret, KEY, SIGNS_TOO)
    assert redeem(registry, secret).signing_key == SIGNS  # nor take it away
    assert redeem(registry, secret, KEY, SIGNS).signing_key == SIGNS


def test_a_member_that_joined_without_a_signing_key_may_bring_one(registry, store):
    secret = invite(registry, approved=False)
    redeem(registry, secret)
    assert redeem(registry, secret, KEY, SIGNS).signing_key == SIGNS
    registry.change("site", "berlin", "approve")
    assert registry.signing_keys() == {"berlin": SIGNS}
    names = [row["name"] for row in store.query("SELECT name FROM events ORDER BY seq")]
    assert names == ["site_invited", "site_joined", "site_signs", "site_active"]


def test_joining_anew_replaces_the_signing_key_and_is_journalled(registry, store):
    redeem(registry, invite(registry), KEY, SIGNS)
    registry.change("site", "berlin", "revoke")
    redeem(registry, invite(registry), OTHER, SIGNS_TOO)
    assert registry.signing_keys() == {"berlin": SIGNS_TOO}
    joined = [json.loads(row["fields"]) for row in store.query("SELECT fields FROM events WHERE name = 'site_joined'")]
    assert [fields["signing_key"] for fields in joined] == [SIGNS.hex(), SIGNS_TOO.hex()]
