"""From the operator's roster key to a roster that the sites believe, typed as an operator types it."""

from __future__ import annotations

import asyncio
import json

from foedus.client_sdk.home import SiteHome
from foedus.privacy.secagg.roster import Roster
from foedus.privacy.secagg.signing import site_id
from foedus.protos.invitation import Invitation
from foedus.protos.v1 import operations_pb2
from loopback import loopback
from shell import Shell


async def joined(local, shell, name, *options):
    """Invite and enrol a site with the commands; its home, and what the two commands said."""
    out, told = await shell.run("server", "invite", name, "--approved", *options)
    text = local.invitation(out).encode()
    said, _ = await shell.run("site", "join", text, "--home", name)
    return SiteHome(shell.folder / name), told, said


def id_of(home):
    return site_id(home.signer().public_key().public_bytes_raw()).hex()


async def published(local):
    reply = await local.operator().ShowRoster(operations_pb2.ShowRosterRequest())
    return reply.version, reply.signed


async def test_from_the_key_to_a_roster_that_sites_believe(tmp_path):
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        refused = await shell.refused(2, "ConfigError", "roster", "key")
        assert "is inside the server's home" in refused["message"]
        assert "--on-server-anyway" in refused["hint"]
        assert "make one with" in (await shell.refused(2, "ConfigError", "roster", "sign", "--yes"))["hint"]
        await shell.refused(2, "NotFound", "roster", "show")
        early, told, said = await joined(local, shell, "early")
        assert "there is no roster key, so early will take part in no secure sum" in told
        assert "takes no part in secure sums" in said
        assert early.pinned_roster_key() is None

        made = await shell.json("roster", "key", "--file", "roster.key")
        assert made["made"]
        assert (tmp_path / "roster.key").stat().st_mode & 0o777 == 0o600
        shell.environment["FOEDUS_ROSTER_KEY"] = "roster.key"
        assert await shell.json("roster", "key") == {**made, "made": False}
        assert (await shell.run("roster", "key"))[0] == f"{made['public_key']}\n"

        a, told, said = await joined(local, shell, "a")
        assert "no roster key" not in told
        assert id_of(a) in said
        assert a.pinned_roster_key().hex() == made["public_key"]
        b, *_ = await joined(local, shell, "b", "--roster-key", "roster.key")
        status = await shell.json("site", "status", "--home", "a")
        assert (status["signing_key_id"], status["roster_key"]) == (id_of(a), made["public_key"])
        assert f"signing key: {id_of(a)}" in (await shell.run("site", "status", "--home", "a"))[0]
        assert "none pinned" in (await shell.run("site", "status", "--home", "early"))[0]
        ids = {s["name"]: s["signing_key_id"] for s in await shell.json("server", "sites", "ls")}
        assert ids == {"operator": "", "early": id_of(early), "a": id_of(a), "b": id_of(b)}

        # Nobody there to compare the keys: nothing is signed.
        _, err = await shell.run("roster", "sign", code=130)
        assert all(text in err for text in (id_of(a), id_of(b), "Have you compared every new key? Sign roster 1?"))
        assert await published(local) == (0, b"")
        signed = await shell.json("roster", "sign", "--yes")
        assert (signed["version"], signed["signed"], signed["without_key"]) == (1, True, [])
        assert signed["sites"] == [
            {"name": name, "key_id": id_of(home), "change": "new"}
            for name, home in (("a", a), ("b", b), ("early", early))
        ]
        roster = Roster.from_bytes((await published(local))[1])
        for home in (a, b):
            roster.verify(home.pinned_roster_key(), federation="hearts", at_least=1)
        again = await shell.json("roster", "sign", "--yes")
        assert (again["version"], again["signed"]) == (1, False)
        assert (await published(local))[0] == 1

        # One is revoked and one joins: sign again.
        await shell.run("server", "sites", "revoke", "b", "--yes")
        c, *_ = await joined(local, shell, "c")
        shown = await shell.json("roster", "show")
        assert (shown["version"], shown["signed_by_you"]) == (1, True)
        assert {(s["name"], s["state"]) for s in shown["sites"]} == {
            ("a", "active"), ("b", "revoked"), ("early", "active")
        }  # fmt: skip
        signed = await shell.json("roster", "sign", "--yes")
        assert [(s["name"], s["change"]) for s in signed["sites"]] == [
            ("a", ""), ("c", "new"), ("early", ""), ("b", "gone")
        ]  # fmt: skip
        version, data = await published(local)
        assert version == 2
        assert {id.hex() for id in Roster.from_bytes(data).by_id} == {id_of(a), id_of(c), id_of(early)}
        out, _ = await shell.run("roster", "show")
        assert out.startswith("roster 2 of hearts, signed by your key\n")

        # Another operator's key: nothing that this one has signed counts for it.
        other = Shell(tmp_path, local.home.operator)
        other.environment["FOEDUS_ROSTER_KEY"] = "other.key"
        await other.run("roster", "key")
        assert not (await other.json("roster", "show"))["signed_by_you"]
        _, err = await other.run("roster", "sign", code=130)
        assert "roster 2 is NOT signed by this key" in err
        assert "as before" not in err


async def test_an_operators_invitation_carries_no_roster_key(tmp_path):
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        await shell.run("roster", "key", "--on-server-anyway")
        out, err = await shell.run("server", "invite", "ada", "--as-operator")
        assert Invitation.decode(out).roster_key == b""
        assert "roster key" not in err
        out, _ = await shell.run("server", "invite", "a", "--json")
        data = json.loads(out)["data"]
        assert Invitation.decode(data["invitation"]).roster_key.hex() == data["roster_key"] != ""
        await shell.refused(2, "ConfigError", "server", "invite", "b", "--roster-key", "nowhere")
        names = {s["name"] for s in await shell.json("server", "sites", "ls")}
        assert "b" not in names


async def test_signing_twice_at_once_publishes_one_roster(tmp_path):
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        shell.environment["FOEDUS_ROSTER_KEY"] = "roster.key"
        await shell.run("roster", "key")
        await joined(local, shell, "a")
        both = await asyncio.gather(*(shell.run("roster", "sign", "--yes") for _ in range(2)))
        assert all(out.startswith("roster 1 ") for out, _ in both)  # the same key and sites give the same bytes
        assert (await published(local))[0] == 1
