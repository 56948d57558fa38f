"""SIGKILL between rounds: a rule that carries something on from round to round ends in the same model."""

from __future__ import annotations

import pytest
from foedus.plan import AggregatorPlan

pytestmark = pytest.mark.faults

ROUNDS = 4
VALUES = {"a": 1.0, "b": 2.0, "c": 2.5, "eve": -20.0}


@pytest.mark.parametrize(
    "aggregator",
    [AggregatorPlan(name="centered-clipping", clip=0.5), AggregatorPlan(name="foolsgold")],
    ids=lambda a: a.name,
)
def test_killed_between_rounds(trial, aggregator):
    for site, value in VALUES.items():
        trial.add(site, value, grow=0.25)
    trial.connected(*VALUES)
    plan = trial.plan(ROUNDS, len(VALUES), aggregator=aggregator)
    expected = trial.finished(trial.submit(plan))

    trial.hold("evaluate")  # the round is committed then, and the next one has not begun
    run = trial.submit(plan)
    for round in range(1, ROUNDS):
        trial.until(lambda: trial.fed.show(run).round >= round, f"round {round} is committed")  # noqa: B023
        trial.fed.kill("server")
        trial.fed.start_server()
        trial.let_go("evaluate")
        trial.until(lambda: trial.fed.show(run).rounds[round - 1].state == "evaluated", "its evaluation")  # noqa: B023
        trial.hold("evaluate")
    trial.let_go("evaluate")
    done = trial.finished(run)
    assert [round.model_sha256 for round in done.rounds] == [round.model_sha256 for round in expected.rounds]
    assert [told(round) for round in done.rounds] == [told(round) for round in expected.rounds]
    standing = trial.sites()["eve"]
    assert standing.rounds_judged == 2 * ROUNDS, "no round counts twice"
    assert len([line for line in trial.journal() if " train " in line]) == 2 * ROUNDS * len(VALUES)


def told(round):
    return {p.site: (p.verdict, p.weight, p.score) for p in round.participations if p.phase == 1}
