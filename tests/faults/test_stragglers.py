"""Silent, late, slow and dying sites: the round closes when it should, with exactly what it should."""

from __future__ import annotations

import signal

import pytest
from foedus.plan import Cohort, Evaluation

pytestmark = pytest.mark.faults

NO_EVALUATION = Evaluation(every=0)
SHORT_SECONDS, LONG_SECONDS = 2.0, 120.0


def three_sites(trial, **task):
    for site, value in (("a", 2.0), ("b", 4.0), ("c", 100.0)):
        trial.add(site, value, **task)
    trial.connected("a", "b", "c")


def test_a_round_closes_without_a_frozen_site(trial):
    three_sites(trial)
    trial.hold("train", "c")
    cohort = Cohort(minimum=3, quorum=2, deadline_seconds=SHORT_SECONDS)
    run = trial.submit(trial.plan(rounds=1, cohort=cohort, evaluation=NO_EVALUATION))
    trial.journalled("c train 1")
    trial.signal("c", signal.SIGSTOP)
    trial.finished(run)
    assert trial.verdicts(run, 1) == {"a": "accepted", "b": "accepted", "c": "absent"}
    assert trial.model(run).tolist() == [3.0] * 4


def test_a_site_that_beats_but_does_not_move_is_absent(trial):
    three_sites(trial)
    trial.hold("train", "c")
    cohort = Cohort(minimum=3, quorum=2, deadline_seconds=SHORT_SECONDS)
    run = trial.submit(trial.plan(rounds=1, cohort=cohort, evaluation=NO_EVALUATION))
    trial.finished(run)
    assert trial.sites()["c"].connected
    assert trial.verdicts(run, 1)["c"] == "absent"
    assert trial.model(run).tolist() == [3.0] * 4


def test_a_round_without_its_quorum_fails_and_is_tried_again(trial):
    three_sites(trial)
    trial.hold("train", "b")
    trial.hold("train", "c")
    cohort = Cohort(minimum=3, quorum=2, deadline_seconds=SHORT_SECONDS)
    run = trial.submit(trial.plan(rounds=1, cohort=cohort, evaluation=NO_EVALUATION, max_failed_rounds=100))
    trial.until(lambda: trial.events("round_failed"), "the round fails")
    trial.let_go("train", "b")
    trial.finished(run)
    assert trial.model(run).tolist() == [3.0] * 4
    assert trial.journal().count("a train 1") == 1, "an update that was accepted is kept for the next attempt"


def test_a_run_whose_rounds_keep_failing_fails_and_says_who_was_silent(trial):
    three_sites(trial)
    trial.hold("train", "b")
    trial.hold("train", "c")
    cohort = Cohort(minimum=3, quorum=2, deadline_seconds=SHORT_SECONDS / 2)
    run = trial.submit(trial.plan(rounds=1, cohort=cohort, max_failed_rounds=1))
    failed = trial.ended(run)
    assert failed.state == "failed"
    assert failed.reason == "round 1: 1 updates arrived, the quorum is 2; silent: b, c"
    assert failed.last_sha256 == failed.initial_sha256


def test_with_over_selection_the_round_closes_at_its_target(trial):
    three_sites(trial)
    trial.hold("train", "c")
    cohort = Cohort(count=2, minimum=2, over_selection=0.5, deadline_seconds=LONG_SECONDS)
    run = trial.submit(trial.plan(rounds=1, cohort=cohort, evaluation=NO_EVALUATION))
    trial.finished(run)
    assert trial.verdicts(run, 1) == {"a": "accepted", "b": "accepted", "c": "absent"}
    assert trial.model(run).tolist() == [3.0] * 4
    trial.until(lambda: not trial.sites()["c"].working_on, "c was told that it is too late")


@pytest.mark.parametrize(("late", "expected"), [("drop", 6.0), ("keep", (3.0 + (2 + 4 + 100) / 3))])
def test_a_late_update_is_dropped_or_counts_in_the_next_round(trial, late, expected):
    three_sites(trial)
    trial.hold("train", "c")
    cohort = Cohort(minimum=3, quorum=2, deadline_seconds=SHORT_SECONDS, late=late)
    run = trial.submit(trial.plan(rounds=2, cohort=cohort, evaluation=NO_EVALUATION))
    trial.until(lambda: trial.fed.show(run).round == 1, "round 1 is committed without c")
    trial.hold("train", "a")
    if late == "keep":
        # c is still in round 1; it is let go for that round alone, and frozen before it can send the next.
        trial.let_go("train", "c")
        trial.until(lambda: trial.verdicts(run, 1)["c"] == "late", "the late update of c")
        trial.signal("c", signal.SIGSTOP)
    trial.let_go("train", "a")
    trial.finished(run)
    assert trial.model(run).tolist() == pytest.approx([expected] * 4, abs=1e-5)


def test_a_late_update_of_a_later_round_counts_too(trial):
    three_sites(trial)
    cohort = Cohort(minimum=3, quorum=2, deadline_seconds=SHORT_SECONDS, late="keep")
    run = trial.submit(trial.plan(rounds=4, cohort=cohort, evaluation=NO_EVALUATION))
    trial.until(lambda: trial.fed.show(run).round >= 1, "a round from the initial model")
    trial.hold("train", "c")
    trial.until(lambda: "absent" in {trial.verdicts(run, n)["c"] for n in (2, 3)}, "a later round without c")
    missed = next(n for n in (2, 3) if trial.verdicts(run, n)["c"] == "absent")
    trial.let_go("train", "c")
    trial.until(lambda: trial.verdicts(run, missed)["c"] == "late", "the late update of c")
    trial.finished(run)


def test_a_slow_line_that_moves_is_not_silent(new_trial, proxies):
    trial = new_trial()
    size = 250_000
    with proxies.Proxy(trial.fed.port) as proxy:
        trial.add("a", 2.0, size=size, scale=1.0)
        trial.add("b", 4.0, size=size, scale=1.0, port=proxy.port)
        trial.connected("a", "b")
        proxy.bytes_per_second, proxy.latency_seconds = 4e6 / 8, 0.2
        # A megabyte takes two seconds at the very least, in each direction.
        cohort = Cohort(minimum=2, deadline_seconds=1.5)
        run = trial.submit(trial.plan(rounds=1, cohort=cohort, max_failed_rounds=0, evaluation=NO_EVALUATION))
        done = trial.finished(run)
    assert trial.verdicts(run, 1) == {"a": "accepted", "b": "accepted"}
    round = done.rounds[0]
    assert round.finished_unix_seconds - round.started_unix_seconds > 2 * cohort.deadline_seconds


def test_a_site_that_dies_in_mid_stream_leaves_nothing_in_the_sum(trial, proxy):
    size = 500_000
    trial.add("a", 2.0, size=size)
    trial.add("b", 4.0, size=size)
    trial.add("c", 100.0, size=size, port=proxy.port)
    trial.hold("train", "c")
    cohort = Cohort(minimum=3, quorum=2, deadline_seconds=2 * SHORT_SECONDS)
    run = trial.submit(trial.plan(rounds=2, cohort=cohort, evaluation=NO_EVALUATION, max_failed_rounds=0))
    trial.journalled("c train 1")
    proxy.bytes_per_second = 1_000_000
    trial.let_go("train", "c")
    trial.until(lambda: trial.partial(run, 1, "c") > size, "a part of the update of c has arrived")
    trial.fed.kill("c")
    trial.until(lambda: trial.fed.show(run).round == 1, "round 1 is committed without c")
    assert set(trial.model(run)) == {3.0}
    assert not list((trial.folder / "server/state/inbox" / run / "1").glob("*")), "nothing of it is kept"


def test_a_round_that_rests_on_no_example_fails_the_run(trial):
    trial.add("a", 2.0, examples=0)
    trial.add("b", 4.0, examples=0)
    run = trial.submit(trial.plan(rounds=2))
    failed = trial.ended(run)
    assert failed.state == "failed"
    assert "no example" in failed.reason
    assert failed.last_sha256 == failed.initial_sha256
    assert failed.round == 0
