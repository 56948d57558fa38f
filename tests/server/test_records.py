"""Runs and rounds only move forwards, whatever order the writers come in."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from foedus.clock import ManualClock
from foedus.errors import NotFound, RunStateError
from foedus.protos.messages import Phase, UploadHeader, Work
from foedus.server.history import ALIVE, Judgement, RoundState, RunState, Verdict
from foedus.server.journal import verify_journal
from foedus.server.participation_records import ParticipationRecords
from foedus.server.registry import Registry
from foedus.server.round_records import RoundRecords
from foedus.server.run_records import RunRecords
from foedus.server.store import Store
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import plan

SHA = "ab" * 32


@dataclass(frozen=True)
class Records:
    """What one database remembers."""

    runs: RunRecords
    rounds: RoundRecords
    participations: ParticipationRecords

    @classmethod
    def of(cls, store, clock):
        return cls(RunRecords(store, clock), RoundRecords(store, clock), ParticipationRecords(store, clock))


@pytest.fixture
def records(tmp_path):
    store = Store(tmp_path / "foedus.db")
    yield Records.of(store, ManualClock())
    store.close()


# What the server's own parts ask for: (to, allowed).
MOVES = [
    (RunState.RUNNING, (RunState.QUEUED,)),
    (RunState.RUNNING, (RunState.PAUSED,)),
    (RunState.PAUSED, (RunState.RUNNING,)),
    (RunState.FINISHED, (RunState.RUNNING,)),
    (RunState.FAILED, (RunState.RUNNING,)),
    (RunState.STOPPED, ALIVE),
]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(MOVES), max_size=12))
def test_terminal_states_are_final(moves):
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "foedus.db")
        records = Records.of(store, ManualClock())
        run = records.runs.create(plan(), SHA)
        state, journalled = RunState.QUEUED, 0
        for to, allowed in moves:
            if state in allowed:
                assert records.runs.move(run.id, to, allowed=allowed, reason=f"to {to}").reason == f"to {to}"
                state, journalled = to, journalled + 1
            else:
                with pytest.raises(RunStateError, match=f"is {state} and cannot become {to}"):
                    records.runs.move(run.id, to, allowed=allowed, reason="too late")
            assert records.runs.find(run.id).state is state
            assert records.runs.find(run.id).reason != "too late"
        assert verify_journal(store)[0] == 1 + journalled
        store.close()


def test_a_late_writer_cannot_undo_a_stop(records):
    run = records.runs.create(plan(), SHA)
    records.runs.move(run.id, RunState.STOPPED, allowed=ALIVE)
    with pytest.raises(RunStateError):
        records.runs.move(run.id, RunState.RUNNING, allowed=(RunState.QUEUED, RunState.RUNNING, RunState.PAUSED))
    assert records.runs.find(run.id).state is RunState.STOPPED


def test_runs_that_are_over_are_not_even_read(records):
    over, alive = records.runs.create(plan(name="over"), SHA), records.runs.create(plan(name="alive"), SHA)
    records.runs.move(over.id, RunState.STOPPED, allowed=ALIVE)
    with records.runs.store.transaction("a test") as db:
        db.execute("UPDATE runs SET plan_json = 'of another age' WHERE id = ?", (over.id,))
    assert [run.id for run in records.runs.all(ALIVE)] == [alive.id]
    assert records.runs.all(()) == []


def test_recent_runs(tmp_path):
    clock = ManualClock()
    store = Store(tmp_path / "foedus.db")
    records, ids = Records.of(store, clock), []
    for _ in range(3):
        ids.append(records.runs.create(plan(), SHA).id)
        clock.advance(1)
    assert [run.id for run in records.runs.all()] == ids
    assert [run.id for run in records.runs.recent(2)] == [ids[2], ids[1]]
    store.close()


def test_a_run_is_found_by_a_unique_beginning(records):
    runs = [records.runs.create(plan(), SHA) for _ in range(20)]
    assert records.runs.find(runs[0].id) == runs[0]
    first = runs[0].id
    shared = [run.id for run in runs if run.id[0] == first[0]]
    if len(shared) > 1:
        with pytest.raises(NotFound, match="more than one"):
            records.runs.find(first[0])
    for text in ("", "zz", "%", "_", "x' OR '1'='1"):
        with pytest.raises(NotFound):
            records.runs.find(text)


def opened(records, cohort=("a", "b")):
    run = records.runs.create(plan(), SHA)
    records.rounds.open(
        run.id,
        1,
        available=["a", "b", "c"],
        cohort=cohort,
        target=2,
        quorum=1,
        base_sha256=run.initial_sha256,
        base_optimizer_sha256=None,
        base_aggregator_sha256=None,
    )
    return run, Work(run.id, 1, Phase.TRAIN)


COUNTED = Judgement(1, weight=0.5, score=1.5)
LEFT = Judgement(1, weight=0.0, score=9.5, reason="krum left it out")


def commit(records, run, **changes):
    values = {"model_sha256": "11" * 32, "optimizer_sha256": None, "aggregator_sha256": None, "metrics": {}}
    return records.rounds.commit(run.id, 1, **{**values, "judgements": {}, "memory": 0.9, **changes})


def header(run):
    return UploadHeader(run.id, 1, SHA, SHA, 4, "cd" * 32, 5, 1, {"loss": 0.5})


def test_a_round_moves_forwards_only(records):
    run, work = opened(records)
    records.participations.settle(work, "a", Verdict.ACCEPTED, upload=header(run))
    assert commit(records, run).state is RoundState.COLLECTING  # not closed: nothing is committed
    assert records.rounds.close(run.id, 1, absent={"a": "silent", "b": "silent"}).state is RoundState.CLOSED
    assert {p.site: p.verdict for p in records.participations.in_phase(run.id, 1, Phase.TRAIN)} == {
        "a": "accepted",  # an answer that is in is never made absent
        "b": "absent",
    }
    committed = commit(records, run, metrics={"loss": 0.5}, judgements={"a": COUNTED})
    assert (committed.state, committed.model_sha256) == (RoundState.COMMITTED, "11" * 32)
    again = commit(records, run, model_sha256="22" * 32, judgements={"a": LEFT})
    assert (again.model_sha256, again.training_metrics) == ("11" * 32, {"loss": 0.5})
    assert records.participations.find(work, "a").verdict is Verdict.ACCEPTED
    assert records.rounds.close(run.id, 1, absent={}).state is RoundState.COMMITTED
    done = records.rounds.finish_evaluation(run.id, 1, metrics={"auc": 1.0}, absent={}, best=("11" * 32, 1.0))
    assert done.state is RoundState.EVALUATED
    assert records.runs.find(run.id).best_value == 1.0


def test_another_attempt_keeps_what_was_accepted(records):
    run, work = opened(records, ("a", "b"))
    records.participations.settle(work, "a", Verdict.ACCEPTED, upload=header(run))
    records.participations.settle(work, "b", Verdict.REFUSED, code="SiteVeto", reason="no")
    records.rounds.fail(run.id, 1, "no quorum")
    round = records.rounds.open(
        run.id,
        1,
        available=["b", "c"],
        cohort=["b", "c"],
        target=2,
        quorum=2,
        base_sha256="ignored",
        base_optimizer_sha256=None,
        base_aggregator_sha256=None,
    )
    assert (round.attempt, round.reason, round.base_sha256) == (2, "", SHA)
    assert round.available == {"b", "c"}
    assert {p.site: p.verdict for p in records.participations.in_phase(run.id, 1, Phase.TRAIN)} == {
        "a": "accepted",
        "b": "asked",
        "c": "asked",
    }


def test_models_in_use(records):
    run, _ = opened(records)
    assert records.runs.blobs_in_use() == {SHA}
    records.rounds.close(run.id, 1, absent={"a": "silent", "b": "silent"})
    commit(records, run, optimizer_sha256="22" * 32, aggregator_sha256="33" * 32)
    assert records.runs.blobs_in_use() == {SHA, "11" * 32, "22" * 32, "33" * 32}


def test_what_became_of_each_update(records):
    run, work = opened(records, ("a", "b", "c"))
    for site in ("a", "b", "c"):
        records.participations.settle(work, site, Verdict.ACCEPTED, upload=header(run))
    records.rounds.close(run.id, 1, absent={})
    scoreless = Judgement(1, weight=None, score=None)
    commit(records, run, judgements={"a": COUNTED, "b": LEFT, "c": scoreless})
    a, b, c = records.participations.in_phase(run.id, 1, Phase.TRAIN)
    assert (a.verdict, a.code, a.weight, a.score) == ("accepted", "", 0.5, 1.5)
    assert (b.verdict, b.code, b.reason, b.weight, b.score) == ("rejected", "LeftOut", "krum left it out", 0.0, 9.5)
    assert (c.verdict, c.weight, c.score) == ("accepted", None, None)
    assert b.sha256 == header(run).sha256  # what was received is still known
    fields = json.loads(
        records.runs.store.query("SELECT fields FROM events WHERE name = 'round_committed'")[0]["fields"]
    )
    assert fields["left_out"] == {"b": 9.5}
    assert fields["weights"] == {"a": 0.5, "b": 0.0, "c": None}


def standings(records):
    registry = Registry(records.runs.store, ManualClock())
    return {name: (s.rejection_rate, s.rounds_judged) for name in "abcd" for s in [registry.standing(name)]}


def judged(records, verdicts, judgements, memory=0.5):
    """A round of a run of its own, in which the sites get these verdicts before it is committed."""
    run, work = opened(records, tuple(verdicts))
    for site, (verdict, code) in verdicts.items():
        upload = header(run) if verdict is Verdict.ACCEPTED else None
        records.participations.settle(work, site, verdict, code=code, upload=upload)
    records.rounds.close(run.id, 1, absent={})
    for _ in range(2):  # a restart may come between the commit and whoever waits for it: nothing counts twice
        commit(records, run, judgements=judgements, memory=memory)
    return run


def test_a_round_counts_once_in_each_sites_standing(records):
    registry = Registry(records.runs.store, ManualClock())
    for site in "abcd":
        registry.add(site, "site", key_sha256="1" * 64, expires=9e9)
    registry.add("b", "operator", key_sha256="1" * 64, expires=9e9)  # a namesake
    verdicts = {
        "a": (Verdict.ACCEPTED, ""),
        "b": (Verdict.ACCEPTED, ""),
        "c": (Verdict.REJECTED, "InvalidUpdate"),
        "d": (Verdict.REFUSED, "SiteVeto"),
    }
    judged(records, verdicts, {"a": COUNTED, "b": LEFT})
    assert standings(records) == {"a": (0.0, 1), "b": (0.5, 1), "c": (0.5, 1), "d": (0.0, 0)}
    judged(records, {**verdicts, "c": (Verdict.REJECTED, "LayoutMismatch")}, {"a": COUNTED, "b": LEFT})
    assert standings(records) == {"a": (0.0, 2), "b": (0.75, 2), "c": (0.5, 1), "d": (0.0, 0)}
    judged(records, {"b": (Verdict.ACCEPTED, "")}, {"b": COUNTED})
    assert standings(records)["b"] == (0.375, 3)
    # One whose update is worthless, and whose late one of the round before counts: what is bad stands.
    judged(records, {"c": (Verdict.REJECTED, "InvalidUpdate")}, {"c": COUNTED})
    assert standings(records)["c"] == (0.75, 2)
    assert (
        records.runs.store.query("SELECT max(rounds_judged) AS most FROM members WHERE role = 'operator'")[0]["most"]
        == 0
    )


@given(st.lists(st.booleans(), max_size=12), st.floats(0, 0.99))
@settings(max_examples=20)
def test_the_rejection_rate_is_exponentially_weighted(rejected, memory):
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "foedus.db")
        records = Records.of(store, ManualClock())
        Registry(store, ManualClock()).add("a", "site", key_sha256="1" * 64, expires=9e9)
        for against in rejected:
            judged(records, {"a": (Verdict.ACCEPTED, "")}, {"a": LEFT if against else COUNTED}, memory)
        ages = range(len(rejected) - 1, -1, -1)
        expected = sum((1 - memory) * memory**age for age, against in zip(ages, rejected, strict=True) if against)
        rate, rounds = standings(records)["a"]
        assert rate == pytest.approx(expected, abs=1e-12)
        assert rounds == len(rejected)
        store.close()
