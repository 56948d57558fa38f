"""Which examples each step trains on."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.client_sdk.schedule import batches, must_stop, planned_steps, step_seed
from foedus.client_sdk.task import TrainingJob
from foedus.clock import ManualClock
from foedus.plan import LocalTraining
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 3), st.integers(0, 2**63 - 1))
def test_every_epoch_visits_every_example_once(num_examples: int, batch_size: int, epochs: int, seed: int) -> None:
    last = planned_steps(LocalTraining(epochs=epochs, batch_size=batch_size), num_examples)
    seen = np.concatenate([indices for _, indices in batches(seed, num_examples, batch_size, 0, last)])
    for epoch in range(epochs):
        part = seen[epoch * num_examples : (epoch + 1) * num_examples]
        assert sorted(part) == list(range(num_examples))
    assert len(seen) == epochs * num_examples


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 30), st.integers(0, 30))
def test_the_schedule_can_be_entered_at_any_step(num_examples: int, batch_size: int, first: int, more: int) -> None:
    whole = list(batches(7, num_examples, batch_size, 0, first + more))
    part = list(batches(7, num_examples, batch_size, first, first + more))
    assert [step for step, _ in part] == list(range(first, first + more))
    for (_, expected), (_, got) in zip(whole[first:], part, strict=True):
        np.testing.assert_array_equal(expected, got)


def test_epochs_and_seeds_shuffle_differently() -> None:
    orders = {tuple(next(batches(seed, 50, 50, epoch, epoch + 1))[1]) for seed in (1, 2) for epoch in (0, 1)}
    assert len(orders) == 4
    assert len({step_seed(seed, step) for seed in range(10) for step in range(10)}) == 100


@pytest.mark.parametrize(
    ("training", "num_examples", "expected"),
    [
        (LocalTraining(epochs=2, batch_size=4), 9, 6),
        (LocalTraining(epochs=2, batch_size=4), 8, 4),
        (LocalTraining(steps=5, batch_size=4), 2, 5),
        (LocalTraining(steps=5), 0, 0),
        (LocalTraining(epochs=5), 0, 0),
    ],
)
def test_the_number_of_steps(training: LocalTraining, num_examples: int, expected: int) -> None:
    assert planned_steps(training, num_examples) == expected


def test_a_job_stops_when_asked_or_out_of_time() -> None:
    def job(max_seconds: float | None, asked: bool) -> TrainingJob:
        training = LocalTraining(steps=1, max_seconds=max_seconds)
        return TrainingJob(
            run="r", round=1, site="s", training=training, seed=0, should_stop=lambda: asked, clock=ManualClock()
        )

    assert not must_stop(job(None, False), 1e9)
    assert not must_stop(job(10, False), 9.9)
    assert must_stop(job(10, False), 10)
    assert must_stop(job(None, True), 0)
