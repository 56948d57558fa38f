"""The commands as operators type them, each a process of its own, against a real server."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import click
import pytest
from click.testing import CliRunner
from foedus import cli
from foedus.aggregators.kernel_choice import best_kernel
from foedus.cli import NOUNS, root
from foedus.client_sdk.enrol import join
from foedus.client_sdk.home import SiteHome
from foedus.client_sdk.site import Site
from foedus.clock import SystemClock
from foedus.modelfile import ModelFile, write_model
from foedus.server.init import initialise
from foedus.server.journal import verify_journal
from foedus.server.store import Store
from loopback import loopback, toy_model, update_bytes
from shell import Shell

PLAN = """
name = "toy"
task = "toy"
model = "initial.safetensors"
rounds = 1
max_failed_rounds = 0
[training]
steps = 1
[cohort]
count = {count}
quorum = 1
[evaluation]
every = 0
"""


def commands(group, path=()):
    yield path
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            yield from commands(group.get_command(context, name), (*path, name))


ALL = list(commands(root))


def test_every_noun_is_there():
    assert {path[0] for path in ALL if path} == set(NOUNS)
    assert len(ALL) > 25


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help(path):
    """In process, since importing is the slow part; one real process follows below."""
    result = CliRunner().invoke(root, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    assert lines[1] != "Options:", f"{path} has no description"


async def test_a_whole_run(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.format(count=2))
    write_model(tmp_path / "initial.safetensors", toy_model())
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        assert (await shell.run("--help"))[0].startswith("Usage:")
        a, b = local.site("a"), local.site("b")
        await a.connect()
        await b.connect()
        status = await shell.json("server", "status")
        assert (status["federation"], status["sites_connected"], status["runs_active"]) == ("hearts", 2, 0)
        assert status["kernel"] == best_kernel().name

        submitted = await shell.json("run", "submit", "plan.toml")
        id = submitted["id"]
        assert submitted["state"] == "queued"
        order = await a.hear("assignment")
        watching = asyncio.create_task(shell.run("run", "watch", id[:6], "--json"))
        assert (await shell.json("run", "pause", id))["state"] == "paused"
        assert (await shell.refused(2, "RunStateError", "run", "pause", id))["message"].endswith("cannot become paused")
        assert [run["state"] for run in await shell.json("run", "ls")] == ["paused"]
        assert (await shell.json("run", "resume", id))["state"] == "running"
        assert (await a.upload(order, update_bytes(1.0), metrics={"loss": 0.25})).accepted
        assert not (await b.upload(order, update_bytes(float("nan")))).accepted
        events = [json.loads(line) for line in (await watching)[0].splitlines()]
        assert events[0]["event"] == "watch_began"
        assert events[-1]["event"] == "run_finished"
        assert "round_committed" in {event["event"] for event in events}

        shown = await shell.json("run", "show", id)
        verdicts = {p["site"]: (p["verdict"], p["code"]) for p in shown["rounds"][0]["participations"]}
        assert verdicts == {"a": ("accepted", ""), "b": ("rejected", "InvalidUpdate")}
        assert shown["rounds"][0]["training_metrics"] == {"loss": 0.25}
        text, _ = await shell.run("run", "show", id)
        assert "b rejected (InvalidUpdate: the update holds nan" in text

        fetched = await shell.json("run", "fetch", id, "last", "out.safetensors")
        assert fetched["sha256"] == shown["last_sha256"] == ModelFile.open(tmp_path / "out.safetensors").digest()
        await shell.refused(2, "NotFound", "run", "fetch", id, "best", "best.safetensors")
        assert not (tmp_path / "best.safetensors").exists()
        await shell.run("run", "report", id, "report.html")
        assert id in (tmp_path / "report.html").read_text()
        await shell.run("run", "watch", id)  # a run that has ended: exit 0 at once
        await shell.refused(2, "RunStateError", "run", "stop", id, "--yes")
    store = Store(local.home.database)
    assert verify_journal(store)[0] > 5
    store.close()


async def test_failed_and_stopped_runs_exit_1(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.format(count=1))
    write_model(tmp_path / "initial.safetensors", toy_model())
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        a = local.site("a")
        await a.connect()
        following = asyncio.create_task(shell.run("run", "submit", "plan.toml", "--watch", code=1))
        assert not (await a.upload(await a.hear("assignment"), update_bytes(float("inf")))).accepted
        out, err = await following
        assert "failed" in out
        assert re.search(r"foedus: run \w+ failed: round 1: 0 updates arrived, the quorum is 1", err)

        id = (await shell.json("run", "submit", "plan.toml"))["id"]
        await shell.run("run", "stop", id, code=130)  # nobody there to confirm
        assert (await shell.json("run", "stop", id, "--yes"))["state"] == "stopped"
        _, err = await shell.run("run", "watch", id, code=1)
        assert "stopped by an operator" in err


async def test_a_watch_that_the_server_ends_is_no_success(tmp_path):
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        id = await local.submit()
        watching = asyncio.create_task(shell.run("run", "watch", id, code=3))
        while len(local.fed.feed._watchers) < 2:  # the run itself listens too, while it waits for sites
            await asyncio.sleep(0.05)
        local.fed.feed.close()  # as when the server drains
        _, err = await watching
        assert f"the server ended the watch while run {id} was running" in err


async def test_audit(tmp_path):
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        local.member("site", "a")
        first = await shell.json("server", "audit", local.home.folder)  # while it is up
        assert first["entries"] >= 2
        local.member("site", "b")
    database = local.home.database.read_bytes()
    second = await shell.json("server", "audit", local.home.folder, "--noted", first["digest"])
    assert second["entries"] == first["entries"] + 1
    assert local.home.database.read_bytes() == database
    out, _ = await shell.run("server", "audit", local.home.folder)
    assert second["digest"] in out
    await shell.refused(1, "Corrupt", "server", "audit", local.home.folder, "--noted", "ab" * 32)
    store = Store(local.home.database)
    with store.transaction("tampering") as db:
        db.execute("UPDATE events SET name = 'nothing' WHERE seq = 1")
    store.close()
    fault = await shell.refused(1, "Corrupt", "server", "audit", local.home.folder)
    assert "journal entry 1 (nothing) does not follow" in fault["message"]
    await shell.refused(2, "ConfigError", "server", "audit", "nowhere")
    assert not (tmp_path / "nowhere").exists()


async def pending(local):
    """Wait until a member waits for approval."""
    while not any(member.state == "pending" for member in local.fed.registry.members()):
        await asyncio.sleep(0.05)


async def test_members(tmp_path):
    async with loopback(tmp_path) as local:
        shell = Shell(tmp_path, local.home.operator)
        listen = await shell.json("server", "sites", "ls")
        assert [(s["name"], s["role"], s["state"]) for s in listen] == [("operator", "operator", "active")]

        # A further operator: invited, approved, joined, at work.
        invited = await shell.json("server", "invite", "ada", "--as-operator", "--expires", "30m")
        joining = asyncio.create_task(
            join(
                local.invitation(invited["invitation"]),
                SiteHome(tmp_path / "ada"),
                clock=SystemClock(),
                sleep=lambda _seconds: asyncio.sleep(0.05),
            )
        )
        await pending(local)
        assert (await shell.json("server", "sites", "approve", "ada", "--as-operator"))["state"] == "active"
        await joining
        ada = Shell(tmp_path, tmp_path / "ada")
        assert (await ada.json("server", "status"))["federation"] == "hearts"
        _, err = await shell.run(
            "site", "join", local.invitation(invited["invitation"]).encode(), "--home", "eve", code=3
        )
        assert "already used with another key" in err

        # A site: waits for approval, is seen, suspended, approved, revoked.
        invited = await shell.json("server", "invite", "berlin")
        assert [s["state"] for s in await shell.json("server", "sites", "ls") if s["name"] == "berlin"] == ["invited"]
        joining = asyncio.create_task(
            shell.run("site", "join", local.invitation(invited["invitation"]).encode(), "--home", "berlin")
        )
        await pending(local)
        found = await ada.json("server", "sites", "approve", "berlin")
        assert (found["state"], len(found["key_sha256"])) == ("active", 64)
        out, err = await joining
        assert "berlin is a member of hearts" in out
        assert found["key_sha256"][:8] in out + err
        site = asyncio.create_task(Site.from_home(tmp_path / "berlin").serve())
        while not len(local.fed.sessions):
            await local.fed.sessions.change()
        assert [s["connected"] for s in await shell.json("server", "sites", "ls") if s["name"] == "berlin"] == [True]
        assert (await shell.json("server", "sites", "suspend", "berlin"))["state"] == "suspended"
        while len(local.fed.sessions):
            await local.fed.sessions.change()
        assert not site.done()  # it waits, and is back as soon as it is approved again
        assert (await shell.json("server", "sites", "approve", "berlin"))["state"] == "active"
        while not len(local.fed.sessions):
            await local.fed.sessions.change()
        await shell.run("server", "sites", "revoke", "berlin", code=130)
        assert (await shell.json("server", "sites", "revoke", "berlin", "--yes"))["state"] == "revoked"
        site.cancel()
        await asyncio.gather(site, return_exceptions=True)
        await shell.refused(2, "NotFound", "server", "sites", "approve", "nobody")
        assert (await shell.json("server", "sites", "revoke", "ada", "--as-operator", "--yes"))["state"] == "revoked"
        await ada.refused(3, "NotApproved", "server", "status")

        # A site's certificate opens no operator's door: 5, refused.
        folder = tmp_path / "disguise"
        folder.mkdir()
        paris = local.member("site", "paris")
        (folder / "key.pem").write_bytes(paris.key_pem)
        (folder / "certificate.pem").write_bytes(paris.certificate_pem)
        (folder / "authority.pem").write_bytes(paris.authority_pem)
        (folder / "address").write_text(local.address)
        error = await Shell(tmp_path, folder).refused(5, "AccessDenied", "server", "status")
        assert error["message"] == "Status is not for site callers"

        drained = asyncio.create_task(local.server.drained())
        assert await shell.json("server", "drain") == {}
        await asyncio.wait_for(drained, 20)


def test_mistakes_at_the_keyboard(tmp_path, monkeypatch, capsys):
    """In this process: none of them gets as far as a server."""
    home = initialise(tmp_path / "server", federation="hearts", address="127.0.0.1:1", listen=None, clock=SystemClock())
    plan, model = tmp_path / "plan.toml", tmp_path / "initial.safetensors"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOEDUS_OPERATOR", str(home.operator))

    def refused(code, error, *words):
        monkeypatch.setattr(sys, "argv", ["foedus", *words, "--json"])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == code
        out, err = capsys.readouterr()
        fault = json.loads(out)["error"]
        assert fault["code"] == error
        assert err.splitlines() == [
            f"foedus: {fault['message']}",
            *([f"        {fault['hint']}"] * bool(fault["hint"])),
        ]
        return fault

    def usage(*words):
        monkeypatch.setattr(sys, "argv", ["foedus", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == 2
        return capsys.readouterr().err

    submit = ("run", "submit", "plan.toml")
    assert "there is no file" in refused(2, "ConfigError", *submit)["message"]
    plan.write_text(PLAN.format(count=1).replace("rounds", "runds"))
    assert refused(2, "ConfigError", *submit)["hint"] in ("did you mean rounds?", "add rounds = …")
    plan.write_text(PLAN.format(count=1).replace("initial.safetensors", "."))
    assert "cannot be read" in refused(2, "ConfigError", *submit)["message"]
    plan.write_text(PLAN.format(count=1).replace('model = "initial.safetensors"', ""))
    assert "model is missing" in refused(2, "ConfigError", *submit)["message"]
    plan.write_text(PLAN.format(count=1))
    assert "there is no model file" in refused(2, "ConfigError", *submit)["message"]
    model.write_bytes(b"PK\x03\x04 a zip, or so")
    assert "not a safetensors file" in refused(2, "ConfigError", *submit)["message"]
    write_model(model, toy_model())
    assert refused(3, "ServerUnreachable", *submit)["hint"]
    assert (
        "no operator credentials" in refused(2, "ConfigError", "server", "status", "--operator", "nowhere")["message"]
    )
    refused(2, "ConfigError", "server", "init", "server", "--federation", "x", "--address", "a:1")
    refused(2, "ConfigError", "server", "init", "new", "--federation", "Not One", "--address", "a:1")
    refused(2, "ConfigError", "server", "init", "new", "--federation", "x", "--address", "nowhere")
    refused(2, "ConfigError", "server", "invite", "x", "--expires", "soon")
    assert "the invitation is damaged" in usage("site", "join", "foedus1.AAAA")
    assert "shw" in usage("run", "shw")
    assert "PLAN" in usage("run", "submit")


def test_a_bug_is_admitted_and_exits_70(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["foedus", "server", "status", "--operator", str(tmp_path)])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("foedus.server.cli.ask_server", lambda *_: 1 / 0)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 70
    said = capsys.readouterr().err
    assert "a bug: ZeroDivisionError" in said
    (report,) = tmp_path.glob("foedus-bug-*.txt")
    assert "ZeroDivisionError" in report.read_text()
