"""A long run does not grow."""

from __future__ import annotations

from collections import defaultdict

import psutil
import pytest
from foedus.plan import Evaluation

pytestmark = [pytest.mark.faults, pytest.mark.slow]

ROUNDS = 100
SIZE = 25_000_000 // 4


@pytest.mark.timeout(600)
def test_the_server_is_as_large_after_a_hundred_rounds_as_after_five(trial):
    trial.add("a", 2.0, size=SIZE)
    trial.add("b", 4.0, size=SIZE)
    run = trial.submit(trial.plan(rounds=ROUNDS, evaluation=Evaluation(every=0)))
    server = psutil.Process(trial.fed.processes["server"].pid)
    # The least of each round: what is kept, without what happens to be in transit.
    resident_bytes = defaultdict(list)

    def measure():
        shown = trial.fed.show(run)
        resident_bytes[shown.round].append(server.memory_info().rss)
        return shown.state == "finished"

    trial.until(measure, "the run is finished", seconds=500, poll_seconds=0.2)
    assert set(trial.model(run)) == {3.0 * ROUNDS}
    settled = min(size for round in range(5, 16) for size in resident_bytes[round])
    at_the_end = min(size for round in range(ROUNDS - 10, ROUNDS) for size in resident_bytes[round])
    assert at_the_end < 1.1 * settled
    stored = list((trial.folder / "server/state/blobs").iterdir())
    assert len(stored) <= 3, "initial and last model"
