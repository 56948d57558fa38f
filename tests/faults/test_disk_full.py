"""A full disk, at the server and at a site: nothing is half-written, and room is all it takes to go on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing, contextmanager

import pytest
from foedus.plan import Cohort, FedAdam

pytestmark = pytest.mark.faults

SIZE = 500_000
MODEL_BYTES = 4 * SIZE
DISK = "24m"


@contextmanager
def small_disk(folder):
    """Put the folder's content on a disk of its own, of ``DISK``; skip the test where that is not allowed."""
    aside = folder.with_name(f"{folder.name}.aside")
    folder.rename(aside)
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        folder.rmdir()
        aside.rename(folder)
        pytest.skip("a small disk cannot be mounted here")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder, leaving=0):
    """Use up the disk but for so many bytes; the file that does it.

    With nothing left the database cannot grow either: its log, which is reused, is cut first.
    """
    if not leaving and (folder / "foedus.db").exists():
        with closing(sqlite3.connect(folder / "foedus.db")) as db:
            assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    ballast = folder / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(folder).free - leaving)
    return ballast


@pytest.fixture
def trial(new_trial):
    """A federation whose server keeps its state on a small disk; the server is not started."""
    trial = new_trial(start=False)
    with small_disk(trial.folder / "server/state"):
        yield trial
        trial.__exit__(None, None, None)


def two_sites(trial):
    trial.fed.start_server()
    trial.add("a", 2.0, size=SIZE)
    trial.add("b", 4.0, size=SIZE)
    trial.connected("a", "b")


def trained(trial):
    return sorted(line for line in trial.journal() if " train " in line)


def finishes_with(trial, run, value):
    trial.finished(run)
    assert set(trial.model(run)) == {value}
    assert trained(trial) == ["a train 1", "a train 2", "b train 1", "b train 2"], "no round was trained twice"


@pytest.mark.parametrize("leaving", [3 * MODEL_BYTES // 2, MODEL_BYTES // 2, 0], ids=["half", "little", "none"])
def test_the_run_pauses_and_goes_on_when_there_is_room(trial, leaving):
    two_sites(trial)
    trial.hold("train")
    run = trial.submit(trial.plan(rounds=2))
    trial.journalled("a train 1")
    trial.journalled("b train 1")
    ballast = fill(trial.folder / "server/state", leaving)
    trial.let_go("train")
    paused = trial.fed.wait(run, until=lambda r: r.state == "paused")
    assert any(words in paused.reason for words in ("left on the disk", "no space left", "is full")), paused.reason
    # With no room at all the pause itself could not be recorded.
    assert bool(leaving) == ("run_held" not in trial.fed.log("server"))
    ballast.unlink()
    trial.change(run, "resume")
    finishes_with(trial, run, 6.0)


def test_a_disk_that_is_full_when_the_model_is_written(trial):
    two_sites(trial)
    trial.hold("train", "b")
    plan = trial.plan(rounds=2, server_optimizer=FedAdam(name="fedadam"))
    run = trial.submit(plan)
    trial.until(lambda: trial.verdicts(run, 1)["a"] == "accepted", "the update of a")
    # Room for the update of b, of which the server wants twice its size, but then not for model and optimizer.
    ballast = fill(trial.folder / "server/state", leaving=2 * MODEL_BYTES + 100_000)
    trial.let_go("train", "b")
    paused = trial.fed.wait(run, until=lambda r: r.state == "paused")
    assert "no space left on the disk" in paused.reason
    assert trial.verdicts(run, 1) == {"a": "accepted", "b": "accepted"}
    assert [path.name for path in (trial.folder / "server/state/blobs").iterdir()] == [paused.initial_sha256]
    ballast.unlink()
    trial.change(run, "resume")
    done = trial.finished(run)
    assert trained(trial) == ["a train 1", "a train 2", "b train 1", "b train 2"]
    assert trial.finished(trial.submit(plan)).last_sha256 == done.last_sha256


def test_the_server_killed_on_a_full_disk_goes_on_when_there_is_room(trial):
    two_sites(trial)
    trial.hold("train")
    run = trial.submit(trial.plan(rounds=2))
    trial.journalled("a train 1")
    trial.journalled("b train 1")
    ballast = fill(trial.folder / "server/state")
    trial.let_go("train")
    trial.until(lambda: trial.fed.show(run).state == "paused", "the run is paused")
    trial.fed.kill("server")
    ballast.unlink()
    trial.fed.start_server()
    # The pause was not recorded, so that the run goes on by itself.
    finishes_with(trial, run, 6.0)


def test_a_site_whose_disk_is_full_says_so_and_takes_part_again_later(new_trial):
    trial = new_trial()
    trial.add("a", 2.0, size=SIZE)
    trial.add("b", 4.0, size=SIZE, start=False)
    outbox = trial.folder / "b/outbox"
    with small_disk(outbox):
        trial.start("b")
        trial.hold("train", "a")
        trial.connected("a", "b")
        ballast = fill(outbox, leaving=MODEL_BYTES // 2)
        cohort = Cohort(minimum=2, quorum=1, deadline_seconds=60)
        run = trial.submit(trial.plan(rounds=2, cohort=cohort))
        trial.until(lambda: trial.verdicts(run, 1)["b"] == "refused", "b says that it cannot")
        ballast.unlink()
        trial.let_go("train", "a")
        done = trial.finished(run)
        refused = [part for part in done.rounds[0].participations if part.verdict == "refused"]
        assert [(part.site, part.code) for part in refused] == [("b", "DiskFull")]
        assert "no space left on the disk" in refused[0].reason
        assert set(trial.model(run)) == {2.0 + 3.0}
        assert not list(outbox.glob("*.tmp"))
        trial.__exit__(None, None, None)
