"""SIGKILL to the server in every phase of a masked round: the same session goes on, and the sum is exact."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from foedus.errors import FoedusError
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask

pytestmark = pytest.mark.faults

LAUNCHER = Path(__file__).with_name("killed_server.py")
MESSAGE = "recording a message of"
# Five keys and a close, five shares and a close, and so on: the first, the last and the close of each phase.
MESSAGES = sorted({6 * phase + which for phase in range(5) for which in (0, 4, 5)} - {29})
OTHERS = (
    "creating a run",
    "opening round",
    "opening a secure sum",
    "replace",  # the model and the updates appear under their names
    "fsync",
    "recording a in",
    "closing round",
    "committing round",
    "forgetting secure sums",
)
CASES = [(MESSAGE, number) for number in MESSAGES] + [(name, 0) for name in OTHERS] + [("replace", -1), ("fsync", -1)]


class Sweep:
    """One federation for all cases: each submits a run, loses the server at a step, and starts it again."""

    def __init__(self, trial, secure):
        self.trial, self.fed, self.secure = trial, trial.fed, secure
        self.orders = trial.folder / "orders"
        self.orders.mkdir()
        self.standby = None
        self.starts = count()
        self.start_server()
        secure.add_sites(trial)
        secure.start_together(trial)
        self.run_once(0)
        self.steps = [line.split(" ", 1)[1] for line in (self.orders / "steps").read_text().splitlines()]

    def start_server(self):
        """Let the server begin whose imports are done already, and prepare the next one."""
        ready, self.standby = self.standby or self.prepare(), None
        self.fed.processes["server"] = ready
        ready.stdin.write(b"go\n")
        ready.stdin.close()
        self.standby = self.prepare()
        self.trial.until(self.answers, "the server answers", poll_seconds=self.secure.POLL_SECONDS)

    def prepare(self):
        command = [sys.executable, str(LAUNCHER), str(self.orders), "server", "up", str(self.trial.folder / "server")]
        return self.trial.spawn("standby", command, stdin=subprocess.PIPE)

    def answers(self):
        assert self.fed.processes["server"].poll() is None, self.fed.log("standby")[-3000:]
        return bool(ask(self.fed.operator, lambda stub: stub.Status(operations_pb2.StatusRequest())).version)

    def runs(self):
        reply = ask(self.fed.operator, lambda stub: stub.ListRuns(operations_pb2.ListRunsRequest()))
        return {run.id for run in reply.runs}

    def number(self, name, which, side):
        """The number of the step before or after a transaction, or of another step, by an undisturbed run."""
        found = [number for number, step in enumerate(self.steps, 1) if name in step and step.startswith(side)]
        return found[which] if found else None

    def run_once(self, kill_at):
        """A whole run, whose server is killed at a step and started again; it ends in the exact mean."""
        before, start = self.runs(), next(self.starts)
        done = len(self.secure.trained(self.trial))
        (self.orders / "kill-at").write_text(str(kill_at))
        (self.orders / "steps").unlink(missing_ok=True)
        plan, model, run = self.secure.secure_plan(self.trial), self.secure.initial(start), ""
        with suppress(FoedusError):  # it may die before it answers
            run = self.fed.submit(plan, model)
        if kill_at:
            self.trial.until(
                lambda: self.dead() or (run and self.fed.show(run).state == "finished"),
                "death, or the end",
                poll_seconds=self.secure.POLL_SECONDS,
            )
            self.fed.kill("server")  # a step that the run did not reach must not come later
            self.start_server()
            created = self.runs() - before
            run = created.pop() if created else self.fed.submit(plan, model)
        self.trial.finished(run)
        expected = self.secure.mean_of(start, *self.secure.VALUES)
        np.testing.assert_array_equal(self.trial.model(run), expected)
        assert set(self.trial.verdicts(run, 1).values()) == {"accepted"}
        assert self.secure.attempts(self.trial, run) == [1]
        assert len(self.secure.trained(self.trial)) == done + len(self.secure.VALUES)
        self.secure.nobody_said_two_things(self.trial)

    def dead(self):
        return self.fed.processes["server"].poll() is not None


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, module_trial, secure):
    return Sweep(module_trial(tmp_path_factory.mktemp("sweep")), secure)


def test_the_steps_are_those_of_a_masked_round(sweep):
    messages = [step for step in sweep.steps if MESSAGE in step]
    assert len(messages) == 2 * (5 * 5 + 4)
    assert all(any(name in step for step in sweep.steps) for name in OTHERS)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(("name", "which"), CASES)
def test_killed_around(sweep, name, which, side):
    if name in ("replace", "fsync"):
        side = name  # such a step is counted once, before it is done
    sweep.run_once(sweep.number(name, which, side))
