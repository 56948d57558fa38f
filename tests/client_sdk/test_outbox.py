import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from foedus.client_sdk.outbox import Outbox, Trained
from foedus.clock import ManualClock
from foedus.errors import Corrupt, DiskFull, InvalidUpdate, ProtocolError, SchemaTooNew, StaleRound, StoreError
from foedus.protos.messages import Receipt
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

MODELS = ("a" * 64, "c" * 64)
MODEL = MODELS[0]
TRAINED = Trained(layout_sha256="b" * 64, num_examples=12, num_steps=3, metrics={"loss": 0.25})
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # sha256("hello")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def box(folder):
    box = Outbox.open(folder, ManualClock())
    yield box
    box.close()


def filled(box, round=1):
    box.begin("run", round, MODEL, 42)
    return box.put("run", round, MODEL, [b"hel", b"lo"], TRAINED)


def test_a_parcel_carries_everything_an_upload_declares(box):
    parcel = filled(box)
    assert parcel.path.read_bytes() == b"hello"
    header = parcel.header
    assert (header.run, header.round, header.model_sha256, header.layout_sha256) == ("run", 1, MODEL, "b" * 64)
    assert (header.num_bytes, header.sha256) == (5, HELLO)
    assert (header.num_examples, header.num_steps, header.metrics) == (12, 3, {"loss": 0.25})
    assert (parcel.seed, parcel.receipt) == (42, None)
    assert box.find("run", 1, MODEL) == parcel
    assert parcel.path.stat().st_mode & 0o077 == 0


def test_a_parcel_is_found_by_run_round_and_model_only(box):
    filled(box)
    assert box.find("run", 2, MODEL) is None
    assert box.find("other", 1, MODEL) is None
    assert box.find("run", 1, MODELS[1]) is None


def test_everything_is_still_there_after_reopening(box, folder):
    parcel = filled(box)
    receipt = Receipt(False, "InvalidUpdate", "no — ü")
    assert box.delivered("run", 1, MODEL, receipt) == replace(parcel, receipt=receipt)
    filled(box, 2)
    box.close()
    again = Outbox.open(folder, ManualClock())
    assert again.find("run", 1, MODEL) == replace(parcel, receipt=receipt)
    assert [p.header.round for p in again.pending()] == [2]
    assert again.rounds_done("run") == 2
    again.close()


def test_a_round_is_never_trained_twice(box):
    box.begin("run", 1, MODEL, 1)
    box.begin("run", 1, MODEL, 1)  # the process died while training
    box.put("run", 1, MODEL, [b"x"], TRAINED)
    with pytest.raises(StaleRound, match="lies ready"):
        box.begin("run", 1, MODEL, 1)
    box.delivered("run", 1, MODEL, Receipt(True))
    box.release("run", 1)
    for model in MODELS:
        with pytest.raises(StaleRound, match="counted already"):
            box.begin("run", 1, model, 1)


def test_a_round_that_did_not_count_may_be_asked_again(box):
    parcel = filled(box)
    box.delivered("run", 1, MODEL, Receipt(False, "InvalidUpdate", ""))
    box.release("run", 1)
    assert not parcel.path.exists()
    assert box.rounds_done("run") == 1
    filled(box)
    assert box.rounds_done("run") == 1


def test_another_model_starts_the_round_afresh(box):
    parcel = filled(box)
    box.begin("run", 1, MODELS[1], 1)
    assert not parcel.path.exists()
    assert box.find("run", 1, MODEL) is None
    with pytest.raises(StaleRound):
        box.put("run", 1, MODEL, [b"x"], TRAINED)


def test_steps_out_of_order_are_refused(box):
    with pytest.raises(StaleRound, match="is unknown here"):
        box.put("run", 1, MODEL, [b"x"], TRAINED)
    box.begin("run", 1, MODEL, 1)
    with pytest.raises(StaleRound, match="is training here"):
        box.delivered("run", 1, MODEL, Receipt(True))
    box.release("never", 9)
    box.release("run", 1)
    assert box.rounds_done("run") == 0


@pytest.mark.parametrize("failure", [InvalidUpdate("nan"), KeyboardInterrupt()])
def test_a_failure_in_the_middle_leaves_nothing(box, folder, failure):
    def blocks():
        yield b"half"
        raise failure

    box.begin("run", 1, MODEL, 1)
    with pytest.raises(type(failure)):
        box.put("run", 1, MODEL, blocks(), TRAINED)
    assert [p.name for p in folder.iterdir() if "update" in p.name] == []
    assert box.rounds_done("run") == 0
    assert box.put("run", 1, MODEL, [b"whole"], TRAINED).path.read_bytes() == b"whole"


@pytest.mark.faults
def test_a_full_disk_is_said_so_and_leaves_nothing(box, folder):
    box.begin("run", 1, MODEL, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(DiskFull, match="no space left"):
            box.put("run", 1, MODEL, [b"x" * (1 << 20)] * 3, TRAINED)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert [p.name for p in folder.iterdir() if "update" in p.name] == []
    assert box.find("run", 1, MODEL) is None
    assert box.put("run", 1, MODEL, [b"x" * (1 << 20)] * 3, TRAINED).header.num_bytes == 3 << 20


@pytest.mark.faults
def test_a_full_disk_under_the_database(box):
    filled(box)
    pages = box._db.execute("PRAGMA page_count").fetchone()[0]
    box._db.execute(f"PRAGMA max_page_count = {pages}")

    def fill():
        for round in range(2, 2000):
            box.begin("run", round, MODEL, 1)

    with pytest.raises(DiskFull):
        fill()
    assert box.find("run", 1, MODEL) is not None
    box._db.execute("PRAGMA max_page_count = 1000000")
    filled(box, 5000)


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
def test_a_damaged_parcel_is_none_at_all(box, folder, damage):
    path = filled(box).path
    box.close()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"hell" if damage == "short" else b"hellO")
    again = Outbox.open(folder, ManualClock())
    assert again.find("run", 1, MODEL) is None
    assert not path.exists()
    assert again.rounds_done("run") == 0
    filled(again)
    again.close()


def test_orphans_are_removed_and_strangers_left_alone(box, folder):
    box.close()
    for name in ("run-9.update", ".run-9.update.123.tmp", "notes.txt"):
        (folder / name).write_bytes(b"x")
    Outbox.open(folder, ManualClock()).close()
    assert sorted(p.name for p in folder.iterdir() if "sqlite" not in p.name) == ["lock", "notes.txt"]


def test_only_one_process_has_it_open(box, folder):
    with pytest.raises(StoreError, match="another process"):
        Outbox.open(folder, ManualClock())


def test_an_update_is_for_the_order_that_it_was_trained_for(box):
    box.begin("run", 1, "a" * 64, 7, "one")
    with pytest.raises(StaleRound):
        box.put("run", 1, "b" * 64, [b"update"], TRAINED)
    box.put("run", 1, "a" * 64, [b"update"], TRAINED)
    assert box.find("run", 1, "a" * 64, "one") is not None
    assert box.find("run", 1, "a" * 64, "other") is None
    with pytest.raises(StaleRound):
        box.begin("run", 1, "a" * 64, 7, "one")
    box.begin("run", 1, "a" * 64, 7, "other")  # another order is trained afresh
    assert box.find("run", 1, "a" * 64, "one") is None


def test_an_outbox_of_before_orders_were_kept_is_opened(box, folder):
    box.close()
    db = sqlite3.connect(folder / "outbox.sqlite")
    db.execute("ALTER TABLE work DROP COLUMN order_sha256")
    db.execute("UPDATE schema SET version = 1")
    db.commit()
    db.close()
    again = Outbox.open(folder, ManualClock())
    again.begin("run", 1, "a" * 64, 7, "one")
    again.close()


def test_a_newer_schema_and_a_damaged_database_are_refused(box, folder):
    box.close()
    db = sqlite3.connect(folder / "outbox.sqlite")
    db.execute("UPDATE schema SET version = 3")
    db.commit()
    db.close()
    with pytest.raises(SchemaTooNew, match="schema 3"):
        Outbox.open(folder, ManualClock())
    (folder / "outbox.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(Corrupt):
        Outbox.open(folder, ManualClock())
    (folder / "outbox.sqlite").unlink()
    Outbox.open(folder, ManualClock()).close()  # a refusal holds no lock


@pytest.mark.adversarial
@pytest.mark.parametrize("run", ["../../etc/passwd", "a/b", "", ".", "a\0b"])
def test_a_runs_id_cannot_leave_the_folder(box, run):
    with pytest.raises(ProtocolError):
        box.begin(run, 1, MODEL, 1)
    with pytest.raises(ProtocolError):
        box.release(run, 1)


@pytest.mark.faults
def test_a_kill_after_any_line_leaves_the_whole_parcel_or_none(tmp_path):
    script = Path(__file__).with_name("outbox_crashes.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    lines, *states = done.stdout.split()
    assert int(lines) > 100
    assert {state.split("=")[0] for state in states} == {"none", "whole", "delivered", "released"}


class AgainstAPlainDictionary(RuleBasedStateMachine):
    """Random lives, with reopening at any point, against what a dictionary remembers."""

    def __init__(self):
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.box = Outbox.open(Path(self.scratch.name), ManualClock())
        self.rows = {}  # (run, round) -> [state, model, content, receipt]

    def teardown(self):
        self.box.close()
        self.scratch.cleanup()

    keys = st.tuples(st.sampled_from(["r", "s-1"]), st.integers(1, 3))

    @rule(key=keys, model=st.sampled_from(MODELS))
    def begin(self, key, model):
        state, had, _, receipt = self.rows.get(key, ["", "", b"", None])
        if (state == "released" and receipt) or (state in ("ready", "delivered") and had == model):
            with pytest.raises(StaleRound):
                self.box.begin(*key, model, 1)
        else:
            self.box.begin(*key, model, 1)
            self.rows[key] = ["training", model, b"", None]

    @rule(key=keys, model=st.sampled_from(MODELS), content=st.binary(max_size=20))
    def put(self, key, model, content):
        if self.rows.get(key, ["", ""])[:2] == ["training", model]:
            self.box.put(*key, model, [content], TRAINED)
            self.rows[key] = ["ready", model, content, None]
        else:
            with pytest.raises(StaleRound):
                self.box.put(*key, model, [content], TRAINED)

    @rule(key=keys, model=st.sampled_from(MODELS), accepted=st.booleans())
    def deliver(self, key, model, accepted):
        row = self.rows.get(key, ["", ""])
        if row[0] in ("ready", "delivered") and row[1] == model:
            self.box.delivered(*key, model, Receipt(accepted))
            row[0], row[3] = "delivered", accepted
        else:
            with pytest.raises(StaleRound):
                self.box.delivered(*key, model, Receipt(accepted))

    @rule(key=keys)
    def release(self, key):
        self.box.release(*key)
        if self.rows.get(key, [""])[0] == "training":
            del self.rows[key]
        elif key in self.rows:
            self.rows[key][0] = "released"

    @rule()
    def reopen(self):
        self.box.close()
        self.box = Outbox.open(Path(self.scratch.name), ManualClock())

    @invariant()
    def agree(self):
        for run in ("r", "s-1"):
            done = sum(row[0] != "training" for key, row in self.rows.items() if key[0] == run)
            assert self.box.rounds_done(run) == done
            for round in (1, 2, 3):
                for model in MODELS:
                    state, had, content, receipt = self.rows.get((run, round), ["", "", b"", None])
                    found = self.box.find(run, round, model)
                    if state in ("ready", "delivered") and had == model:
                        assert found.path.read_bytes() == content
                        assert (found.receipt and found.receipt.accepted) == receipt
                    else:
                        assert found is None


TestAgainstAPlainDictionary = AgainstAPlainDictionary.TestCase
TestAgainstAPlainDictionary.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
