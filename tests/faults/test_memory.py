"""A long run does not grow."""

from __future__ import annotations

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
    resident_bytes = {}

    def measure():
        shown = trial.fed.show(run)
        resident_bytes[shown.round] = max(resident_bytes.get(shown.round, 0), server.memory_info().rss)
        return shown.state == "finished"

    trial.until(measure, "the run is finished", seconds=500)
    assert set(trial.model(run)) == {3.0 * ROUNDS}
    settled = max(size for round, size in resident_bytes.items() if 3 <= round <= 8)
    at_the_end = max(size for round, size in resident_bytes.items() if round > ROUNDS - 5)
    assert at_the_end < 1.1 * settled, resident_bytes
    stored = list((trial.folder / "server/state/blobs").iterdir())
    assert len(stored) <= 3, "initial and last model"
