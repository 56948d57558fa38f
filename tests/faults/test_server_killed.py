"""The server is killed, drained or paused in each phase; the sites come back by themselves."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing

import pytest
from foedus.plan import Cohort, FedAdam

pytestmark = pytest.mark.faults

SIZE = 500_000
MODEL_BYTES = UPDATE_BYTES = 4 * SIZE
LINE_BYTES_PER_SECOND = 1_000_000
OVERHEAD_BYTES = 250_000


def restart(trial):
    trial.fed.kill("server")
    trial.fed.start_server()


def trains(trial):
    return sorted(line for line in trial.journal() if " train " in line)


def two_sites(trial, **task):
    trial.add("a", 2.0, **task)
    trial.add("b", 4.0, **task)


def test_killed_in_mid_upload(trial, proxy):
    trial.add("a", 2.0, port=proxy.port, size=SIZE)
    trial.add("b", 4.0, size=SIZE)
    trial.hold("train", "a")
    run = trial.submit(trial.plan(rounds=1))
    trial.journalled("a train 1")
    proxy.bytes_per_second = LINE_BYTES_PER_SECOND
    trial.let_go("train", "a")
    trial.until(lambda: trial.partial(run, 1, "a") > UPDATE_BYTES // 3, "a third of the update has arrived")
    trial.fed.kill("server")
    received, sent = trial.partial(run, 1, "a"), proxy.num_up
    proxy.bytes_per_second = None
    trial.fed.start_server()
    trial.finished(run)
    assert proxy.num_up - sent < UPDATE_BYTES - received + OVERHEAD_BYTES
    assert set(trial.model(run)) == {3.0}
    assert trains(trial) == ["a train 1", "b train 1"]


def test_killed_in_mid_download(trial, proxy):
    trial.add("a", 2.0, port=proxy.port, size=SIZE, scale=1.0)
    trial.add("b", 4.0, size=SIZE, scale=1.0)
    trial.connected("a", "b")
    proxy.bytes_per_second = LINE_BYTES_PER_SECOND
    run = trial.submit(trial.plan(rounds=1))

    def received():
        return sum(path.stat().st_size for path in (trial.folder / "a/models").glob("*.part"))

    trial.until(lambda: received() > MODEL_BYTES // 3, "a third of the model has arrived")
    # As when the machine dies: what the line still holds is lost. Then it hangs up on every attempt.
    proxy.refuse = True
    proxy.cut()
    trial.fed.kill("server")
    trial.logged("a", "download_interrupted", times=3)
    had, passed = received(), proxy.num_down
    proxy.bytes_per_second, proxy.refuse = None, False
    trial.fed.start_server()
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    assert MODEL_BYTES // 3 < had < MODEL_BYTES
    # the rest of the model, and at most the whole of the next one, to evaluate it
    assert proxy.num_down - passed < 2 * MODEL_BYTES - had + OVERHEAD_BYTES
    trial.finished(run)
    assert trains(trial) == ["a train 1", "b train 1"]


def test_killed_in_mid_training(trial):
    two_sites(trial)
    trial.hold("train")
    run = trial.submit(trial.plan(rounds=2))
    trial.journalled("a train 1")
    trial.journalled("b train 1")
    restart(trial)
    trial.let_go("train")
    trial.finished(run)
    assert trial.model(run).tolist() == [6.0] * 4
    assert trains(trial) == ["a train 1", "a train 2", "b train 1", "b train 2"]


def test_killed_in_mid_evaluation(trial):
    two_sites(trial)
    trial.hold("evaluate")
    run = trial.submit(trial.plan(rounds=2))
    trial.journalled("a evaluate")
    trial.journalled("b evaluate")
    restart(trial)
    trial.let_go("evaluate")
    done = trial.finished(run)
    assert [dict(round.evaluation_metrics) for round in done.rounds] == [{"loss": 3.0}, {"loss": 6.0}]
    assert trial.journal().count("a evaluate") == 2, "what was measured while the server was away is not lost"


def test_killed_while_paused_it_stays_paused(trial):
    two_sites(trial)
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=2))
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    trial.change(run, "pause")
    restart(trial)
    shown = trial.fed.show(run)
    assert (shown.state, shown.reason) == ("paused", "paused by an operator")
    trial.let_go("train", "b")
    trial.until(lambda: trial.verdicts(run, 1)["b"] == "accepted", "updates are taken while a run is paused")
    assert trial.fed.show(run).state == "paused"
    trial.change(run, "resume")
    trial.finished(run)
    assert trial.model(run).tolist() == [6.0] * 4
    assert trains(trial) == ["a train 1", "a train 2", "b train 1", "b train 2"]


def test_killed_again_while_it_recovers(trial):
    two_sites(trial)
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=2))
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    for _ in range(3):
        restart(trial)
    trial.let_go("train", "b")
    trial.finished(run)
    assert trial.model(run).tolist() == [6.0] * 4
    assert trains(trial) == ["a train 1", "a train 2", "b train 1", "b train 2"]


def test_an_update_whose_file_was_damaged_is_sent_again_but_not_trained_again(trial):
    two_sites(trial)
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=1))
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    trial.fed.kill("server")
    (trial.folder / "server/state/inbox" / run / "1/a").write_bytes(b"\0" * 16)
    trial.fed.start_server()
    trial.let_go("train", "b")
    trial.finished(run)
    assert trial.model(run).tolist() == [3.0] * 4
    assert trial.events("work_asked_again") == 1
    assert trains(trial) == ["a train 1", "b train 1"]


def test_sigterm_drains_and_the_run_goes_on_after_the_restart(trial):
    two_sites(trial, grow=0.25)
    plan = trial.plan(rounds=3, server_optimizer=FedAdam(name="fedadam"))
    undisturbed = trial.finished(trial.submit(plan))
    trial.hold("train", "b")
    run = trial.submit(plan)
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    assert trial.fed.terminate("server") == 0
    trial.fed.start_server()
    assert trial.fed.show(run).state == "running"
    trial.let_go("train", "b")
    done = trial.finished(run)
    assert done.last_sha256 == undisturbed.last_sha256
    assert [round.model_sha256 for round in done.rounds] == [round.model_sha256 for round in undisturbed.rounds]


def test_a_drain_lets_an_upload_that_is_under_way_end(new_trial, proxies):
    trial = new_trial(drain_seconds=60.0)
    with proxies.Proxy(trial.fed.port) as proxy:
        trial.add("a", 2.0, port=proxy.port, size=SIZE)
        trial.hold("train", "a")
        run = trial.submit(trial.plan(rounds=1, sites=1))
        trial.journalled("a train 1")
        proxy.bytes_per_second = LINE_BYTES_PER_SECOND
        trial.let_go("train", "a")
        trial.until(lambda: trial.partial(run, 1, "a"), "the update begins to arrive")
        assert trial.fed.terminate("server") == 0
        assert trial.events("work_accepted") == 1
        trial.fed.start_server()
        trial.finished(run)


def test_a_second_sigterm_ends_the_drain_at_once(new_trial, proxies):
    trial = new_trial(drain_seconds=600.0)
    with proxies.Proxy(trial.fed.port) as proxy:
        trial.add("a", 2.0, port=proxy.port, size=SIZE)
        trial.hold("train", "a")
        run = trial.submit(trial.plan(rounds=1, sites=1))
        trial.journalled("a train 1")
        proxy.bytes_per_second = LINE_BYTES_PER_SECOND // 20
        trial.let_go("train", "a")
        trial.until(lambda: trial.partial(run, 1, "a"), "the update begins to arrive")
        trial.signal("server", signal.SIGTERM)
        trial.logged("server", "drain_began")
        assert trial.fed.terminate("server") == 1
        proxy.bytes_per_second = None
        trial.fed.start_server()
        trial.finished(run)
        assert set(trial.model(run)) == {2.0}


def test_pausing_and_resuming_keeps_what_was_received(trial):
    two_sites(trial)
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=1))
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    trial.change(run, "pause")
    trial.change(run, "resume")
    trial.let_go("train", "b")
    trial.finished(run)
    assert trial.model(run).tolist() == [3.0] * 4
    assert trains(trial) == ["a train 1", "b train 1"]


def test_a_download_that_is_cut_while_the_run_is_paused_is_no_refusal(trial, proxy):
    trial.add("a", 2.0, port=proxy.port, size=SIZE, scale=1.0)
    trial.add("b", 4.0, size=SIZE, scale=1.0)
    trial.connected("a", "b")
    proxy.bytes_per_second = LINE_BYTES_PER_SECOND // 2
    run = trial.submit(trial.plan(rounds=1))
    trial.until(lambda: list((trial.folder / "a/models").glob("*.part")), "the model begins to arrive")
    trial.change(run, "pause")
    proxy.cut()
    trial.logged("a", "download_interrupted")
    proxy.bytes_per_second = None
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    trial.change(run, "resume")
    trial.finished(run)
    assert trial.verdicts(run, 1) == {"a": "accepted", "b": "accepted"}


@pytest.mark.parametrize("phase", ["waiting for sites", "deploying the model", "training"])
def test_a_run_that_was_stopped_stays_stopped(trial, proxy, phase):
    task = {"size": SIZE, "scale": 1.0} if phase == "deploying the model" else {}
    if phase == "deploying the model":
        proxy.bytes_per_second = LINE_BYTES_PER_SECOND // 4
    trial.add("a", 2.0, port=proxy.port, **task)
    trial.connected("a")
    trial.hold("train")
    run = trial.submit(trial.plan(rounds=2, sites=2 if phase == "waiting for sites" else 1))
    match phase:
        case "waiting for sites":
            trial.until(lambda: trial.fed.show(run).reason, "it says what it waits for")
        case "deploying the model":
            trial.until(lambda: list((trial.folder / "a/models").glob("*.part")), "the model begins to arrive")
        case "training":
            trial.journalled("a train 1")
    assert trial.change(run, "stop").state == "stopped"
    trial.let_go("train")
    restart(trial)
    trial.connected("a")
    proxy.bytes_per_second = None
    # The site is free for the next run, and does nothing for the old one any more.
    following = trial.submit(trial.plan(rounds=1, sites=1))
    trial.finished(following)
    assert trial.fed.show(run).state == "stopped"
    assert trial.fed.show(run).round == 0
    assert trains(trial) == ["a train 1"] * (2 if phase == "training" else 1)
    trial.until(lambda: not trial.waiting_parcels("a"), "a keeps nothing any more")


def test_a_database_of_a_newer_foedus_is_refused(trial):
    trial.fed.terminate("server")
    with closing(sqlite3.connect(trial.folder / "server/state/foedus.db")) as db:
        db.execute("PRAGMA user_version = 999")
    process = trial.spawn("server", [*trial.command, "server", "up", str(trial.folder / "server")])
    assert process.wait() == 2
    assert "has schema version 999, this foedus knows up to" in trial.fed.log("server")


def test_a_damaged_model_pauses_the_run_until_it_is_restored(trial):
    two_sites(trial)
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=2))
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    trial.fed.kill("server")
    blob = trial.folder / "server/state/blobs" / trial.initial_sha256(run)
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-1])
    trial.fed.start_server()
    shown = trial.fed.wait(run, until=lambda r: r.state == "paused")
    assert f"{blob} is damaged" in shown.reason
    blob.write_bytes(whole)
    trial.change(run, "resume")
    trial.let_go("train", "b")
    trial.finished(run)
    assert trial.model(run).tolist() == [6.0] * 4


def test_after_a_restart_no_site_trains_alone_because_it_is_the_first_to_return(trial):
    trial.add("a", 2.0)
    trial.add("b", 4.0)
    trial.connected("a", "b")
    # One site would be enough for this plan.
    run = trial.submit(trial.plan(rounds=3, cohort=Cohort(minimum=1, deadline_seconds=60)))
    trial.until(lambda: trial.fed.show(run).round >= 1, "the first round")
    trial.fed.kill("server")
    trial.signal("b", signal.SIGSTOP)
    trial.fed.start_server()
    trial.connected("a")
    trial.signal("b", signal.SIGCONT)
    trial.finished(run)
    assert set(trial.model(run)) == {9.0}
    assert {site for n in (1, 2, 3) for site in trial.verdicts(run, n)} == {"a", "b"}
