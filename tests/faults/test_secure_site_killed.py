"""A site killed in each phase of a masked round: back again it goes on in that session, or the sum is without it."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.faults

LAUNCHER = Path(__file__).with_name("killed_site.py")
X = 4.0
STAGES = ("KEYS_SENT", "SHARES_SENT", "DELIVERED", "MASKED", "ACKED", "REVEALED")


class Six:
    """Five sites of known mean in one process, and a sixth, x, that is killed; five are enough."""

    def __init__(self, trial, secure):
        self.trial, self.fed, self.secure = trial, trial.fed, secure
        self.starts = count()
        trial.fed.start_server()
        secure.add_sites(trial, [("x", X)])
        secure.start_together(trial)
        self.start_x()

    def start_x(self):
        self.trial.spawn("x", [sys.executable, str(LAUNCHER), str(self.trial.folder / "x")])
        self.secure.connected(self.trial, *self.secure.VALUES, "x")

    def submit(self, kill_at, noise=(), **fields):
        """A run in which x dies; the run, and the model that it begins with."""
        (self.trial.folder / "x/kill-at").write_text(kill_at)
        start = next(self.starts)
        plan = self.secure.secure_plan(self.trial, minimum=6, **fields)
        plan = plan.model_copy(update={"secure": plan.secure.model_copy(update=dict(noise))})
        run = self.fed.submit(plan, self.secure.initial(start))
        self.trial.until(lambda: self.fed.processes["x"].poll() is not None, f"x dies at {kill_at}")
        return run, start

    def is_the_mean(self, run, start, *values):
        self.trial.finished(run)
        expected = np.full(4, np.float32(start) + np.float32(np.mean(values)))
        np.testing.assert_array_equal(self.trial.model(run), expected)
        assert self.secure.attempts(self.trial, run) == [1]
        self.secure.nobody_said_two_things(self.trial)

    def trainings(self, site):
        return self.trial.journal().count(f"{site} train 1")


@pytest.fixture(scope="module")
def six(tmp_path_factory, module_trial, secure):
    return Six(module_trial(tmp_path_factory.mktemp("six")), secure)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("stage", STAGES)
def test_started_again_it_goes_on_where_it_was(six, stage, side):
    before = six.trainings("x")
    run, start = six.submit(f"{stage} {side}")
    six.start_x()
    six.is_the_mean(run, start, *six.secure.VALUES.values(), X)
    assert set(six.trial.verdicts(run, 1).values()) == {"accepted"}
    if stage in ("MASKED", "ACKED", "REVEALED"):  # before, training itself was cut short
        assert six.trainings("x") == before + 1


def test_started_again_it_adds_the_same_noise_to_its_update(six):
    """Fresh noise would be other words than those that it has signed."""
    run, start = six.submit("MASKED after", noise={"noise": "skellam", "noise_multiplier": 0.01})
    six.start_x()
    six.trial.finished(run)
    assert set(six.trial.verdicts(run, 1).values()) == {"accepted"}
    assert six.secure.attempts(six.trial, run) == [1]
    six.secure.nobody_said_two_things(six.trial)
    mean = np.float32(start) + np.float32(np.mean([*six.secure.VALUES.values(), X]))
    error = np.abs(six.trial.model(run) - mean)
    assert 0 < error.max() < 8 * 0.01 * 10 * np.sqrt(6 / 3) / 6


@pytest.mark.parametrize(
    ("order", "counts"),
    [
        ("KEYS_SENT before", False),
        ("SHARES_SENT before", False),
        ("DELIVERED before", False),
        ("MASKED before", False),
        ("MASKED after", False),
        ("ACKED before", True),
        ("REVEALED before", True),
    ],
)
def test_killed_for_good_the_sum_is_of_those_whose_updates_arrived(six, order, counts):
    run, start = six.submit(order, deadline_seconds=3.0)
    six.is_the_mean(run, start, *six.secure.VALUES.values(), *[X] * counts)
    assert six.trial.verdicts(run, 1)["x"] == ("accepted" if counts else "absent")
    # And what it had in hand keeps it from nothing once it is back.
    six.start_x()
    plan, start = six.secure.secure_plan(six.trial, minimum=6), next(six.starts)
    run = six.fed.submit(plan, six.secure.initial(start))
    six.is_the_mean(run, start, *six.secure.VALUES.values(), X)
