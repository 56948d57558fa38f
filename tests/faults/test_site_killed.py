"""A site that loses its process or its line, at every stage of its work: nothing is done or counted twice."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.faults

SIZE = 500_000
SMALL = 4096  # fits into the first window of a stream: nothing has to come back for it to be sent
UPDATE_BYTES = 4 * SIZE
LINE_BYTES_PER_SECOND = 1_000_000
# TLS records, HTTP/2 frames, a handshake, heartbeats: far less than what must not be sent twice.
OVERHEAD_BYTES = 150_000


def trained(trial, site):
    return [line for line in trial.journal() if line.startswith(f"{site} train")]


def test_killed_while_training_it_goes_on_from_its_checkpoint(trial):
    trial.add("a", 2.0, steps=4)
    trial.add("b", 4.0)
    trial.hold("train", "a")
    run = trial.submit(trial.plan(rounds=2))
    trial.journalled("a step 1 0")
    trial.fed.kill("a")
    trial.let_go("train", "a")
    trial.start("a")
    trial.finished(run)
    assert trial.model(run).tolist() == [6.0] * 4
    steps = [line for line in trial.journal() if line.startswith("a step")]
    assert steps == [f"a step {round} {step}" for round in (1, 2) for step in range(4)]


def test_killed_while_training_without_a_checkpoint_it_trains_once_more(trial):
    trial.add("a", 2.0)
    trial.add("b", 4.0)
    trial.hold("train", "a")
    run = trial.submit(trial.plan(rounds=1))
    trial.journalled("a train 1")
    trial.fed.kill("a")
    for checkpoint in (trial.folder / "a/checkpoints").iterdir():
        checkpoint.unlink()
    trial.let_go("train", "a")
    trial.start("a")
    trial.finished(run)
    assert trial.model(run).tolist() == [3.0] * 4
    assert trained(trial, "a") == ["a train 1"] * 2
    assert trained(trial, "b") == ["b train 1"]


def test_killed_while_uploading_it_sends_only_the_rest(trial, proxy):
    trial.add("a", 2.0, port=proxy.port, size=SIZE)
    trial.add("b", 4.0, size=SIZE)
    trial.hold("train", "a")
    run = trial.submit(trial.plan(rounds=1))
    trial.journalled("a train 1")
    proxy.bytes_per_second = LINE_BYTES_PER_SECOND
    trial.let_go("train", "a")
    trial.until(lambda: trial.partial(run, 1, "a") > UPDATE_BYTES // 3, "a third of the update has arrived")
    # As when the machine dies: what the line still holds is lost.
    proxy.refuse = True
    proxy.cut()
    trial.fed.kill("a")
    trial.logged("server", "site_disconnected")
    received, sent = trial.partial(run, 1, "a"), proxy.num_up
    assert UPDATE_BYTES // 3 < received < UPDATE_BYTES
    proxy.bytes_per_second, proxy.refuse = None, False
    trial.start("a")
    trial.finished(run)
    assert proxy.num_up - sent < UPDATE_BYTES - received + OVERHEAD_BYTES
    assert np.array_equal(trial.model(run), np.full(SIZE, 3.0, np.float32))
    assert trained(trial, "a") == ["a train 1"]


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "cut-off"])
def test_an_update_whose_receipt_is_lost_counts_once(trial, proxy, killed):
    trial.add("a", 2.0, port=proxy.port, size=SMALL)
    trial.add("b", 4.0, size=SMALL)
    trial.hold("train", "a")
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=2))
    trial.journalled("a train 1")
    # The header and its answer pass, the update waits until nothing comes back any more.
    proxy.up_to = proxy.num_up + 4 * SMALL // 2
    trial.let_go("train", "a")
    trial.until(lambda: proxy.waiting, "the update is on its way")
    proxy.swallow_down, proxy.up_to = True, float("inf")
    trial.until(lambda: trial.events("work_accepted") == 1, "the server has the update of a")
    assert "update_delivered" not in trial.fed.log("a")
    if killed:
        trial.fed.kill("a")
    proxy.swallow_down = False
    proxy.cut()
    if killed:
        trial.start("a")
    trial.let_go("train", "b")
    trial.finished(run)
    assert set(trial.model(run)) == {6.0}
    assert trained(trial, "a") == ["a train 1", "a train 2"]
    # two sites, two rounds, training and evaluation
    assert trial.events("work_accepted") == 8
    trial.until(lambda: not trial.waiting_parcels("a"), "a keeps nothing any more")


def test_killed_after_every_round_it_trains_each_round_once(trial):
    trial.add("a", 2.0)
    trial.add("b", 4.0)
    trial.hold("train", "b")
    run = trial.submit(trial.plan(rounds=4))
    for round in range(1, 5):
        trial.until(lambda r=round: trial.verdicts(run, r)["a"] == "accepted", f"the update of a in round {round}")
        trial.fed.kill("a")
        trial.journalled(f"b train {round}")
        trial.let_go("train", "b")
        if round < 4:
            trial.until(lambda r=round: trial.fed.show(run).round == r, f"round {round} is committed")
            trial.hold("train", "b")
        trial.start("a")
    trial.finished(run)
    assert trial.model(run).tolist() == [12.0] * 4
    assert trained(trial, "a") == [f"a train {round}" for round in range(1, 5)]


def test_a_line_that_is_cut_again_and_again_delivers_in_the_end(trial, proxy):
    trial.add("a", 2.0, port=proxy.port, size=SIZE, scale=1.0)
    trial.add("b", 4.0, size=SIZE, scale=1.0)
    trial.connected("a", "b")
    proxy.bytes_per_second = 2 * LINE_BYTES_PER_SECOND
    run = trial.submit(trial.plan(rounds=1))
    passed, cuts = proxy.num_up + proxy.num_down, 0
    while trial.fed.show(run).state != "finished":
        trial.until(
            lambda before=passed: (
                proxy.num_up + proxy.num_down > before + UPDATE_BYTES // 3 or trial.fed.show(run).state == "finished"
            ),
            "the line moves, or all is done",
        )
        passed, cuts = proxy.num_up + proxy.num_down, cuts + 1
        proxy.cut()
    # No connection has carried a whole model or update.
    assert cuts > 5
    assert trained(trial, "a") == ["a train 1"]
