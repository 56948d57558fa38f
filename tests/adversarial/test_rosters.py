"""A server that wants to choose whose keys are believed, and callers that publish what they may not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.client_sdk.enrol import join
from foedus.client_sdk.home import SiteHome
from foedus.clock import SystemClock
from foedus.errors import EnrolmentError, ProtocolError, RunStateError, SecureSumFailed
from foedus.privacy.secagg.roster import Roster, signed_roster
from foedus.privacy.secagg.signing import site_id
from foedus.protos.v1 import operations_pb2
from foedus.server.credentials import OperatorHome
from foedus.server.operator import invite
from foedus.server.roster_signing import draft, publish
from loopback import loopback, typed

pytestmark = pytest.mark.adversarial

OPERATOR, SERVER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
PUBLIC, SERVERS = (key.public_key().public_bytes_raw() for key in (OPERATOR, SERVER))


async def enrolled(local, name, roster_key=PUBLIC):
    request = operations_pb2.InviteRequest(name=name, role="site", lifetime_seconds=60, approved=True)
    invitation, _ = await invite(local.operator(), request, roster_key)
    home = SiteHome(local.folder / name)
    await join(replace(invitation, address=local.address), home, clock=SystemClock())
    return home


def own_key(home):
    return home.signer().public_key().public_bytes_raw()


async def drafted(local):
    return await draft(local.operator(), OperatorHome(local.home.operator), PUBLIC)


async def test_an_honest_server_for_comparison(tmp_path):
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, name) for name in ("a", "b")]
        roster = await publish(local.operator(), await drafted(local), OPERATOR)
        assert set(roster.public_keys) == {own_key(home) for home in homes}
        assert local.fed.rosters.latest() == roster
        for home in homes:
            roster.verify(home.pinned_roster_key(), federation="hearts", at_least=1)


async def test_a_server_that_strips_a_signing_key_keeps_the_site_out_and_is_seen(tmp_path, monkeypatch):
    async with loopback(tmp_path) as local:
        real = local.fed.registry.redeem
        await enrolled(local, "b")
        monkeypatch.setattr(local.fed.registry, "redeem", lambda *a, signing_key, **k: real(*a, **k))
        a = await enrolled(local, "a")
        drawn = await drafted(local)
        assert drawn.without_key == ("a",)
        roster = await publish(local.operator(), drawn, OPERATOR)
        assert site_id(own_key(a)) not in roster.by_id


async def test_a_server_that_puts_its_own_key_in_a_sites_place_shows_another_id(tmp_path, monkeypatch):
    """What people compare by telephone differs; nothing else could tell."""
    async with loopback(tmp_path) as local:
        real = local.fed.registry.redeem
        monkeypatch.setattr(
            local.fed.registry, "redeem", lambda *a, signing_key, **k: real(*a, signing_key=SERVERS, **k)
        )
        a = await enrolled(local, "a")
        (listed,) = (await drafted(local)).listed
        assert (listed.name, listed.change) == ("a", "new")
        assert listed.key_id == site_id(SERVERS).hex() != site_id(own_key(a)).hex()


async def test_a_server_that_swaps_a_key_after_it_was_compared_shows_it_as_new(tmp_path):
    async with loopback(tmp_path) as local:
        for name in ("a", "b"):
            await enrolled(local, name)
        await publish(local.operator(), await drafted(local), OPERATOR)
        assert not (await drafted(local)).changes
        with local.fed.runs.store.transaction("swapping") as db:
            db.execute("UPDATE members SET signing_key = ? WHERE name = 'a'", (SERVERS,))
        local.fed.registry._known.clear()
        changes = {listed.key_id: listed.change for listed in (await drafted(local)).listed if listed.change}
        assert changes.pop(site_id(SERVERS).hex()) == "new"
        assert list(changes.values()) == ["gone"]


async def test_a_server_cannot_choose_the_key_that_sites_pin(tmp_path, monkeypatch):
    async with loopback(tmp_path) as local:

        class Meddling:
            """The server's answers, with its own roster key in every invitation."""

            async def Invite(self, request):  # noqa: N802
                reply = await local.operator().Invite(request)
                reply.invitation = replace(local.invitation(reply.invitation), roster_key=SERVERS).encode()
                return reply

        for role, ours, expected in (("site", PUBLIC, PUBLIC), ("site", b"", b""), ("operator", PUBLIC, b"")):
            request = operations_pb2.InviteRequest(name="a", role=role, lifetime_seconds=60)
            invitation, _ = await invite(Meddling(), request, ours)
            assert invitation.roster_key == expected


async def test_a_roster_that_the_server_signs_is_published_and_believed_by_no_site(tmp_path):
    """The server cannot know the operator's key, and need not: each site does."""
    async with loopback(tmp_path) as local:
        a = await enrolled(local, "a")
        forged = signed_roster(SERVER, "hearts", 1, (own_key(a),)).to_bytes()
        await local.operator().PublishRoster(operations_pb2.Roster(signed=forged))
        with pytest.raises(SecureSumFailed) as caught:
            Roster.from_bytes(forged).verify(a.pinned_roster_key(), federation="hearts", at_least=1)
        assert caught.value.reason == "bad-signature"
        drawn = await drafted(local)  # and the operator's next one counts nothing in it as compared
        assert [listed.change for listed in drawn.listed] == ["new"]
        (await publish(local.operator(), drawn, OPERATOR)).verify(
            a.pinned_roster_key(), federation="hearts", at_least=1
        )


async def test_a_roster_with_a_revoked_sites_key_is_refused(tmp_path):
    async with loopback(tmp_path) as local:
        for name in ("a", "b"):
            await enrolled(local, name)
        drawn = await drafted(local)
        local.fed.registry.change("site", "b", "revoke")
        stale = signed_roster(OPERATOR, "hearts", 1, drawn.public_keys)
        with pytest.raises(RunStateError, match="no active site"):
            await typed(local.operator().PublishRoster(operations_pb2.Roster(signed=stale.to_bytes())))
        assert local.fed.rosters.latest() is None
        roster = await publish(local.operator(), await drafted(local), OPERATOR)
        assert len(roster.public_keys) == 1


async def test_the_signed_version_counts_and_not_the_one_beside_it(tmp_path):
    async with loopback(tmp_path) as local:
        roster = signed_roster(OPERATOR, "hearts", 1, ())
        reply = await local.operator().PublishRoster(operations_pb2.Roster(version=99, signed=roster.to_bytes()))
        assert reply.version == 1
        with pytest.raises(ProtocolError, match="this is no roster"):
            await typed(local.operator().PublishRoster(operations_pb2.Roster(version=2, signed=b"nonsense")))


async def test_a_copied_home_does_not_join_under_a_second_name(tmp_path):
    async with loopback(tmp_path) as local:
        a = await enrolled(local, "a")
        copy = SiteHome(tmp_path / "b")
        await asyncio.to_thread(copy.path.mkdir)
        copy.signing_key.write_bytes(a.signing_key.read_bytes())
        with pytest.raises(EnrolmentError, match="another member already signs with the key"):
            await enrolled(local, "b")
        assert list(local.fed.registry.signing_keys()) == ["a"]


async def test_what_was_published_outlasts_a_restart_and_is_answered_as_done(tmp_path):
    async with loopback(tmp_path) as local:
        await enrolled(local, "a")
        roster = await publish(local.operator(), await drafted(local), OPERATOR)
    async with loopback(tmp_path) as local:
        assert local.fed.rosters.latest() == roster
        again = await local.operator().PublishRoster(operations_pb2.Roster(signed=roster.to_bytes()))
        assert (again.version, again.signed) == (1, roster.to_bytes())
        assert not (await drafted(local)).changes
