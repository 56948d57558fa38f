"""Certificates that run out, sites that are shut out, a server that is somebody else: in the middle of a run."""

from __future__ import annotations

import shutil

import pytest
from foedus.clock import SystemClock
from foedus.plan import Cohort
from foedus.privacy.certificates import new_authority
from foedus.server.init import reissue_operator

pytestmark = pytest.mark.faults

CERTIFICATE_SECONDS = 6


def files(folder):
    """The content of every file by name."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_certificates_renew_themselves_in_mid_run(new_trial):
    trial = new_trial(certificate_seconds=CERTIFICATE_SECONDS)
    trial.add("a", 2.0)
    trial.add("b", 4.0)
    renewals = 3
    plan = trial.plan(rounds=1_000_000, max_failed_rounds=0)
    run = trial.submit(plan)
    # The server's own certificate and the operator's have been made anew as well by then.
    for site in "ab":
        trial.logged(site, "certificate_renewed", renewals)
    shown = trial.change(run, "stop")
    assert shown.state == "stopped"
    done = trial.fed.show(run)
    complete = [round for round in done.rounds if round.state == "evaluated"]
    assert len(complete) > renewals
    for round in complete:
        verdicts = {part.verdict for part in round.participations}
        assert verdicts == {"accepted"}, round
    assert trial.events("round_failed") == 0
    assert trial.model(run)[0] == 3.0 * done.round
    # Each joined once and may just have renewed once more: nobody renews again and again.
    assert trial.events("site_certified") <= 2 * (1 + renewals + 1)
    for site in "ab":
        assert trial.fed.processes[site].poll() is None
        assert len(done.rounds) - 1 <= trial.journal().count(f"{site} evaluate") <= len(done.rounds)


def test_adding_a_site_changes_nothing_at_the_others(trial):
    trial.add("a", 2.0, start=False)
    before = files(trial.folder / "a")
    trial.add("b", 4.0, start=False)
    assert files(trial.folder / "a") == before
    trial.start("a")
    trial.hold("train")
    run = trial.submit(trial.plan(rounds=1, sites=1))
    trial.journalled("a train 1")

    def identity():
        kept = ("key.pem", "certificate.pem", "authority.pem", "site.toml", "policy.toml")
        return {name: (trial.folder / "a" / name).read_bytes() for name in kept}

    before = identity()
    trial.add("c", 8.0)
    trial.connected("a", "c")
    trial.let_go("train")
    trial.finished(run)
    assert identity() == before
    assert trial.fed.log("a").count("session_opened") == 1, "the others' sessions live on"
    assert trial.verdicts(run, 1) == {"a": "accepted"}


def test_a_site_suspended_in_mid_round_is_out_at_once_and_comes_back_when_approved(trial):
    for site, value in (("a", 2.0), ("b", 4.0), ("c", 100.0)):
        trial.add(site, value)
    trial.hold("train", "c")
    trial.hold("evaluate", "a")
    cohort = Cohort(minimum=2, quorum=2, fraction=1.0, deadline_seconds=120)
    trial.connected("a", "b", "c")
    run = trial.submit(trial.plan(rounds=2, cohort=cohort))
    trial.journalled("c train 1")
    trial.change_site("c", "suspend")
    # The deadline is far away: the round goes on because c is out.
    trial.until(lambda: trial.fed.show(run).round == 1, "round 1 is committed without c")
    assert trial.verdicts(run, 1)["c"] == "rejected"
    assert set(trial.model(run)) == {3.0}
    trial.until(lambda: not trial.sites()["c"].connected, "the session of c has ended")
    trial.let_go("train", "c")
    assert trial.fed.processes["c"].poll() is None, "it waits to be approved"
    trial.change_site("c", "approve")
    trial.connected("c")
    trial.let_go("evaluate", "a")
    trial.finished(run)
    assert trial.verdicts(run, 2) == {"a": "accepted", "b": "accepted", "c": "accepted"}
    assert trial.model(run).tolist() == pytest.approx([3.0 + 106.0 / 3] * 4, abs=1e-5)


def test_sites_refuse_a_server_of_another_authority_and_wait_for_theirs(trial):
    trial.add("a", 2.0)
    trial.add("b", 4.0)
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=2))
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    assert trial.fed.terminate("server") == 0
    home, kept = trial.folder / "server", trial.folder / "kept"
    kept.mkdir()
    for name in ("authority.pem", "authority.key", "operator"):
        (home / name).rename(kept / name)
    key, certificate = new_authority("trial", SystemClock().now(), 86_400.0)
    (home / "authority.key").write_bytes(key)
    (home / "authority.pem").write_bytes(certificate)
    reissue_operator(home, SystemClock())
    trial.fed.start_server()
    trial.let_go("train", "b")
    for site in "ab":
        trial.logged(site, "the secure connection was refused", 3)
        assert trial.fed.processes[site].poll() is None
    assert not any(site.connected for site in trial.sites().values())
    trial.fed.kill("server")
    shutil.rmtree(home / "operator")
    for path in kept.iterdir():
        path.rename(home / path.name)
    reissue_operator(home, SystemClock())
    trial.fed.start_server()
    trial.finished(run)
    assert trial.model(run).tolist() == [6.0] * 4
    trains = sorted(line for line in trial.journal() if " train " in line)
    assert trains == ["a train 1", "a train 2", "b train 1", "b train 2"]
