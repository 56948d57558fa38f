"""SIGKILL to the server, or to a site, in every phase of a round in shares: the same session goes on, and is exact."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from foedus.errors import FoedusError
from foedus.plan import AggregatorPlan, SecureAggregation
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask

pytestmark = pytest.mark.faults

SERVER, SITE = Path(__file__).with_name("killed_server.py"), Path(__file__).with_name("killed_site.py")
MESSAGE = "recording a message of"
# Of each of the seven phases with five messages and a close: the first message, the last and the close.
MESSAGES = sorted({6 * phase + which for phase in range(7) for which in (0, 4, 5)} - {41})
STAGES = ("KEYS_SENT", "SETTLED", "DEALT", "AGREED", "CONFIRMED", "ANSWERED", "ACKED", "REVEALED")


class Trial:
    """Five sites, or with x six, and runs of one round; the mean is taken by weights that are all alike."""

    def __init__(self, trial, secure):
        self.trial, self.fed, self.secure = trial, trial.fed, secure
        self.orders = trial.folder / "orders"
        self.orders.mkdir()
        self.starts = count()

    def start_server(self):
        command = [sys.executable, str(SERVER), str(self.orders), "server", "up", str(self.trial.folder / "server")]
        process = self.trial.spawn("server", command, stdin=subprocess.PIPE)
        process.stdin.write(b"go\n")
        process.stdin.close()
        self.trial.until(self.answers, "the server answers", poll_seconds=self.secure.POLL_SECONDS)

    def answers(self):
        with suppress(FoedusError):
            return bool(ask(self.fed.operator, lambda stub: stub.Status(operations_pb2.StatusRequest())).version)

    def plan(self, minimum=5, **fields):
        planned = self.secure.secure_plan(self.trial, minimum=minimum, **fields)
        changes = {
            "protection": "shares",
            "aggregator": AggregatorPlan(name="mean"),
            "secure": SecureAggregation(scale=self.secure.SCALE, wrong_holders=0),
        }
        return planned.model_copy(update=changes)

    def steps(self):
        return [line.split(" ", 1)[1] for line in (self.orders / "steps").read_text().splitlines()]

    def is_the_mean(self, run, start, values):
        self.trial.finished(run)
        expected = np.full(4, np.float32(start) + np.float32(np.mean(values)))
        np.testing.assert_array_equal(self.trial.model(run), expected)
        assert set(self.trial.verdicts(run, 1).values()) == {"accepted"}
        assert self.secure.attempts(self.trial, run) == [1]
        self.secure.nobody_said_two_things(self.trial)


@pytest.fixture(scope="module")
def five(tmp_path_factory, module_trial, secure):
    made = Trial(module_trial(tmp_path_factory.mktemp("five")), secure)
    made.start_server()
    secure.add_sites(made.trial)
    secure.start_together(made.trial)
    return made


@pytest.fixture(scope="module")
def undisturbed(five):
    """The steps of a run in which nobody dies."""
    start = next(five.starts)
    run = five.fed.submit(five.plan(), five.secure.initial(start))
    five.is_the_mean(run, start, list(five.secure.VALUES.values()))
    return five.steps()


def test_the_steps_are_those_of_a_round_in_shares(undisturbed):
    assert len([step for step in undisturbed if MESSAGE in step]) == 2 * (7 * 5 + 6)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("which", MESSAGES)
def test_a_server_killed_around_a_message_goes_on(five, undisturbed, which, side):
    found = [at for at, step in enumerate(undisturbed, 1) if MESSAGE in step and step.startswith(side)]
    (five.orders / "kill-at").write_text(str(found[which]))
    start = next(five.starts)
    run = five.fed.submit(five.plan(), five.secure.initial(start))
    five.trial.until(
        lambda: five.fed.processes["server"].poll() is not None, "death", poll_seconds=five.secure.POLL_SECONDS
    )
    five.start_server()
    five.is_the_mean(run, start, list(five.secure.VALUES.values()))


@pytest.fixture(scope="module")
def six(tmp_path_factory, module_trial, secure):
    made = Trial(module_trial(tmp_path_factory.mktemp("six")), secure)
    made.start_server()
    secure.add_sites(made.trial, [("x", 4.0)])
    secure.start_together(made.trial)
    start_x(made)
    return made


def start_x(made):
    made.trial.spawn("x", [sys.executable, str(SITE), str(made.trial.folder / "x")])
    made.secure.connected(made.trial, *made.secure.VALUES, "x")


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_site_killed_around_a_state_goes_on_where_it_was(six, stage, side):
    (six.trial.folder / "x/kill-at").write_text(f"{stage} {side}")
    start = next(six.starts)
    run = six.fed.submit(six.plan(minimum=6), six.secure.initial(start))
    six.trial.until(lambda: six.fed.processes["x"].poll() is not None, f"x dies at {stage}")
    start_x(six)
    six.is_the_mean(run, start, [*six.secure.VALUES.values(), 4.0])
