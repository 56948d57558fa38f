"""SIGKILL between any two writes of the server: the run ends in the same model, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from foedus.errors import FoedusError
from foedus.plan import AggregatorPlan, FedAdam
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask

pytestmark = pytest.mark.faults

LAUNCHER = Path(__file__).with_name("killed_server.py")
ROUNDS = 2
CLIPPING = AggregatorPlan(name="centered-clipping", clip=1.0)  # both it and the optimizer carry a state on
# More than an undisturbed run takes; ``test_the_steps_are_all_tried`` holds this to the truth.
MOST_STEPS = 96


class Sweep:
    """One federation for all cases: each submits a run, loses the server at a step, and starts it again."""

    def __init__(self, trial):
        self.trial, self.fed = trial, trial.fed
        self.orders = trial.folder / "orders"
        self.orders.mkdir()
        self.standby = None
        self.start_server()
        for site, value in (("a", 1.0), ("b", 3.0)):
            trial.add(site, value, start=False, examples=int(value), grow=0.25)
        homes = [str(trial.folder / site) for site in ("a", "b")]
        trial.spawn("sites", [sys.executable, str(LAUNCHER.with_name("eager_sites.py")), *homes])
        trial.connected("a", "b")
        self.expected = self.run_once(0)
        self.steps = (self.orders / "steps").read_text().splitlines()

    def start_server(self):
        """Let the server begin whose imports are done already, and prepare the next one."""
        ready, self.standby = self.standby or self.prepare(), None
        self.fed.processes["server"] = ready
        ready.stdin.write(b"go\n")
        ready.stdin.close()
        self.standby = self.prepare()
        self.trial.until(self.answers, "the server answers")

    def prepare(self):
        command = [sys.executable, str(LAUNCHER), str(self.orders), "server", "up", str(self.trial.folder / "server")]
        return self.trial.spawn("standby", command, stdin=subprocess.PIPE)

    def answers(self):
        assert self.fed.processes["server"].poll() is None, self.fed.log("standby")[-3000:]
        return bool(ask(self.fed.operator, lambda stub: stub.Status(operations_pb2.StatusRequest())).version)

    def runs(self):
        reply = ask(self.fed.operator, lambda stub: stub.ListRuns(operations_pb2.ListRunsRequest()))
        return {run.id for run in reply.runs}

    def run_once(self, kill_at):
        """A whole run; with ``kill_at``, its server is killed there and started again."""
        before = self.runs()
        (self.orders / "kill-at").write_text(str(kill_at))
        (self.orders / "steps").unlink(missing_ok=True)
        plan = self.trial.plan(ROUNDS, server_optimizer=FedAdam(name="fedadam"), aggregator=CLIPPING)
        run = ""
        with suppress(FoedusError):  # it may die before it answers
            run = self.trial.submit(plan)
        if kill_at:
            self.trial.until(
                lambda: self.dead() or (run and self.fed.show(run).state == "finished"), "death, or the end"
            )
            self.fed.kill("server")  # a step that the run did not reach must not come later
            self.start_server()
            created = self.runs() - before
            run = created.pop() if created else self.trial.submit(plan)
        done = self.trial.finished(run)
        return {
            "model": done.last_sha256,
            "best": done.best_sha256,
            "rounds": [(r.number, r.state, r.model_sha256, dict(r.training_metrics)) for r in done.rounds],
            "evaluations": [dict(r.evaluation_metrics) for r in done.rounds],
            "judged": [[(p.site, p.verdict, p.weight, p.score) for p in r.participations] for r in done.rounds],
        }

    def over(self, run):
        return run and self.fed.show(run).state == "finished"

    def dead(self):
        return self.fed.processes["server"].poll() is not None

    def trained(self):
        return [line for line in self.trial.journal() if "train" in line]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, module_trial):
    return Sweep(module_trial(tmp_path_factory.mktemp("sweep")))


def test_the_steps_are_all_tried(sweep):
    assert len(sweep.steps) <= MOST_STEPS
    assert sum("committing round" in step for step in sweep.steps) == 2 * ROUNDS


@pytest.mark.parametrize("step", range(1, MOST_STEPS + 1))
def test_killed_at_step(sweep, step):
    before, judged = len(sweep.trained()), sweep.trial.sites()["a"].rounds_judged
    assert sweep.run_once(step) == sweep.expected
    assert sorted(sweep.trained()[before:]) == ["a train 1", "a train 2", "b train 1", "b train 2"]
    assert sweep.trial.sites()["a"].rounds_judged == judged + ROUNDS
    sweep.trial.until(lambda: not any(map(sweep.trial.waiting_parcels, "ab")), "the sites' outboxes are empty", 10)
