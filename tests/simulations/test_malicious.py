"""A malicious site: its task trains as others do and sends what an attack says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from foedus.client_sdk.array_task import ArrayTask
from foedus.client_sdk.outbound import update_blocks
from foedus.client_sdk.task import LocalResult, Task, TrainingJob, job_seed
from foedus.errors import ConfigError, InvalidUpdate, LayoutMismatch
from foedus.modelfile import Model
from foedus.plan import LocalTraining
from foedus.simulations.attacks import Malicious, attack


def task_towards(goal: list[float], examples: int = 10, name: str = "t") -> ArrayTask:
    """Goes half of the way to ``goal`` in two steps, drawing nothing."""

    def train(values: dict[str, Any], job: TrainingJob) -> Any:
        for step in range(2):
            job.report(step + 1)
        values["seen"] += 1
        return {"w": (values["w"] + np.float32(goal)) / 2, "seen": values["seen"]}, examples, {"loss": 0.5}

    return ArrayTask(
        name=name,
        initial=lambda seed: {"w": np.zeros(len(goal), np.float32), "seen": np.zeros(1, np.int64)},
        train=train,
        evaluate=lambda values: (5, {"accuracy": 1.0}),
    )


def job(**changes: Any) -> TrainingJob:
    values: dict[str, Any] = {"run": "r", "round": 1, "site": "s", "seed": 7, "training": LocalTraining(epochs=1)}
    return TrainingJob(**values | changes)


def sent(task: Task, received: Model | None = None, **changes: Any) -> Any:
    received = received or task.initial(0)
    return task.train(received, job(**changes)).model.trainable_D - received.trainable_D


HOSPITALS = [task_towards([2.0, 0.0]), task_towards([4.0, 2.0]), task_towards([6.0, 4.0])]


def test_the_attack_sees_what_the_colluders_would_send() -> None:
    malicious = Malicious(task_towards([9.0, 9.0]), attack("ipm", epsilon=2.0), colluders=HOSPITALS)
    np.testing.assert_array_equal(sent(malicious), [-2 * 2.0, -2 * 1.0])


def test_without_colluders_its_own_update_stands_for_theirs() -> None:
    np.testing.assert_array_equal(sent(Malicious(task_towards([2.0, 4.0]), attack("ipm", epsilon=1.0))), [-1.0, -2.0])


def test_all_but_the_update_is_that_of_honest_training() -> None:
    honest = task_towards([2.0, 4.0], examples=30)
    malicious: Task = Malicious(honest, attack("sign-flip"))
    received = honest.initial(0)
    before = received.trainable_D.copy()
    theirs, ours = malicious.train(received, job()), honest.train(received, job())
    np.testing.assert_array_equal(theirs.model.trainable_D, -ours.model.trainable_D)
    np.testing.assert_array_equal(theirs.model.counters_C, [1])
    assert replace(theirs, model=ours.model) == ours
    np.testing.assert_array_equal(received.trainable_D, before)
    assert (malicious.name, malicious.layout(), malicious.initial(0).layout) == ("t", honest.layout(), honest.layout())


def test_a_lie_about_examples_needs_no_other_lie() -> None:
    honest = task_towards([2.0, 4.0])
    result: LocalResult = Malicious(honest, claims=10**12).train(honest.initial(0), job())
    assert result.num_examples == 10**12
    np.testing.assert_array_equal(result.model.trainable_D, [1.0, 2.0])


def test_its_evaluations_count_for_nothing() -> None:
    malicious = Malicious(task_towards([2.0]), attack("sign-flip"))
    measured = malicious.evaluate(malicious.initial(0))
    assert (measured.num_examples, dict(measured.metrics)) == (0, {})
    with pytest.raises(LayoutMismatch):
        malicious.evaluate(task_towards([2.0, 3.0]).initial(0))


def test_a_free_rider_repeats_the_last_step_of_the_model() -> None:
    honest = task_towards([2.0, 4.0])
    rider = Malicious(honest, attack("free-rider", repeat=True))
    first = honest.initial(0)
    second = replace(first, trainable_D=np.array([0.5, 0.25], np.float32))
    third = replace(first, trainable_D=np.array([1.5, 0.25], np.float32))
    np.testing.assert_array_equal(sent(rider, first, round=1), [0, 0])
    np.testing.assert_array_equal(sent(rider, second, round=2), [0.5, 0.25])
    np.testing.assert_array_equal(sent(rider, second, round=2), [0.5, 0.25])  # the round is tried again
    np.testing.assert_array_equal(sent(rider, third, round=3), [1, 0])
    np.testing.assert_array_equal(sent(rider, third, round=1, run="another"), [0, 0])


def test_attackers_that_act_together_each_send_a_row_of_their_own() -> None:
    send = attack("gaussian", sigma=1.0)
    pair = [Malicious(task_towards([0.0] * 4), send, num_attackers=2, index=index) for index in (0, 1)]
    rows = [sent(one, site=f"site-{index}", seed=index) for index, one in enumerate(pair)]
    np.testing.assert_array_equal(rows, send(np.zeros((1, 4)), 2, 3, seed=job_seed(0, 1, "r")))
    assert not np.array_equal(*rows)
    assert not np.array_equal(rows[0], sent(pair[0], round=2))
    with pytest.raises(ConfigError, match="attacker 2 of 2"):
        Malicious(task_towards([0.0]), send, num_attackers=2, index=2)


def test_the_size_of_the_round_is_what_it_is_said_to_be() -> None:
    poisoned = task_towards([2.0])
    backdoor = attack("scaled-backdoor")
    np.testing.assert_array_equal(sent(Malicious(poisoned, backdoor)), [2.0])
    np.testing.assert_array_equal(sent(Malicious(poisoned, backdoor, colluders=[task_towards([0.0])] * 3)), [4.0])
    np.testing.assert_array_equal(sent(Malicious(poisoned, backdoor, num_updates=10)), [10.0])


def test_steps_count_on_while_the_colluders_train() -> None:
    reported: list[int] = []
    malicious = Malicious(task_towards([1.0]), attack("sign-flip"), colluders=[task_towards([1.0])] * 2)
    assert malicious.train(malicious.initial(0), job(report=reported.append)).num_steps == 2
    assert reported == [1, 2, 3, 4, 5, 6]


def test_what_is_not_finite_does_not_leave_the_site() -> None:
    malicious = Malicious(task_towards([1.0, 2.0]), attack("non-finite"))
    received = malicious.initial(0)
    with pytest.raises(InvalidUpdate, match="'w' nan"):
        list(update_blocks(received, malicious.train(received, job()).model))


def test_huge_updates_leave_it_without_a_warning() -> None:
    assert np.isfinite(sent(Malicious(task_towards([1.0, 2.0]), attack("huge", value=1e30)))).all()
    assert np.isinf(sent(Malicious(task_towards([1.0, 2.0]), attack("huge", value=1e39)))).all()
