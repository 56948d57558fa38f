"""The example under attack: one lying site in five ruins the mean, and a robust rule does not let it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from foedus.cli import root
from foedus.client_sdk.task import Task, TrainingJob, job_seed
from foedus.errors import ConfigError
from foedus.examples.heart.attacker import ATTACKS
from foedus.examples.heart.attacker import task_for as attacker_for
from foedus.examples.heart.baseline import heart_plan, quality
from foedus.examples.heart.data import HOSPITALS, together, training_and_test
from foedus.examples.heart.demo import ATTACKER, plan_for, run
from foedus.examples.heart.scaling import scaling_of
from foedus.examples.heart.task import initial_model, task_for
from foedus.modelfile import Model
from foedus.plan import Plan
from foedus.server.aggregation import aggregator_for

TASKS: dict[str, Task] = {hospital: task_for(hospital=hospital) for hospital in HOSPITALS}
SCALING = scaling_of(together([training_and_test(hospital, 0)[0] for hospital in HOSPITALS]))
NUM_TRAINING = sum(len(training_and_test(hospital, 0)[0]) for hospital in HOSPITALS)


def trained(task: Task, received: Model | None = None, site: str = "s") -> Any:
    received = received or initial_model(SCALING, 0)
    job = TrainingJob(run="r", round=1, site=site, training=heart_plan().training, seed=job_seed(0, 1, site))
    result = task.train(received, job)
    return result, result.model.trainable_D - received.trainable_D


def cosine(a_D: Any, b_D: Any) -> float:
    return float(a_D @ b_D / np.linalg.norm(a_D) / np.linalg.norm(b_D))


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_a_site_like_the_others(name: str) -> None:
    task: Task = attacker_for(attack=name)
    assert task.name == "heart"
    assert task.layout().digest == TASKS["hungary"].layout().digest
    result, update_D = trained(task)
    assert result.model.layout.digest == task.layout().digest
    assert np.isfinite(update_D).all() == (name != "non-finite")
    assert task.evaluate(result.model).num_examples == 0
    assert result.num_examples == (10**12 if name == "weight-inflation" else NUM_TRAINING)


@pytest.mark.parametrize("name", ["ipm", "sign-flip", "label-flip", "scaled-backdoor", "weight-inflation"])
def test_these_push_the_model_back(name: str) -> None:
    honest_D = np.mean([trained(task, site=site)[1] for site, task in TASKS.items()], axis=0)
    assert cosine(trained(attacker_for(attack=name))[1], honest_D) < -0.8


def test_an_unknown_attack_is_met_with_the_nearest() -> None:
    for make in (lambda: attacker_for(attack="lable-flip"), lambda: plan_for(None, "lable-flip", None)):
        with pytest.raises(ConfigError, match="no attack 'lable-flip'") as caught:
            make()
        assert caught.value.hint == "did you mean label-flip?"


def test_without_attack_or_rule_the_plan_is_the_example_s() -> None:
    assert plan_for(None, None, None) == heart_plan()
    assert plan_for(None, None, "mean") == heart_plan()
    assert plan_for(3, None, None).rounds == 3
    assert plan_for(None, None, None).protection == "masks"


def test_under_attack_five_sites_are_waited_for_and_one_may_lie() -> None:
    plan = plan_for(None, "ipm", "multi-krum")
    assert (plan.cohort.minimum, plan.aggregator.name, plan.aggregator.f) == (5, "multi-krum", 1)
    assert (plan.aggregator.weighting, plan.protection) == (None, "none")
    assert plan_for(None, "ipm", "mean").aggregator == heart_plan().aggregator
    assert plan_for(None, None, "krum").aggregator.f == 0


@pytest.mark.parametrize(
    "name",
    [
        *("krum", "median", "trimmed-mean", "meamed", "geometric-median", "centered-clipping"),
        *("mda", "dnc", "fltrust", "foolsgold"),
    ],
)
def test_every_rule_that_five_sites_suffice_for_fits(name: str) -> None:
    assert plan_for(None, "ipm", name).aggregator.name == name


@pytest.mark.parametrize(
    ("name", "message"), [("bulyan", "at least 7"), ("krumm", "no aggregator 'krumm'"), ("Krum", "aggregator: name")]
)
def test_a_rule_that_does_not_fit_is_refused_before_anything_starts(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run(rounds=1, split=0, keep=tmp_path / "kept", json_file=None, attack="ipm", aggregator=name)
    assert not (tmp_path / "kept").exists()


def test_the_command_reads_the_environment() -> None:
    asked = CliRunner().invoke(root, ["demo", "heart"], env={"ATTACK": "imp", "AGGREGATOR": "mean"})
    assert isinstance(asked.exception, ConfigError)
    assert "'imp'" in str(asked.exception)
    asked = CliRunner().invoke(root, ["demo", "heart", "--attack", "ipm"], env={"AGGREGATOR": "krumm"})
    assert "'krumm'" in str(asked.exception)


def federated(tasks: dict[str, Task], plan: Plan) -> Model:
    """The federation in its plainest form, over the sites' own tasks."""
    aggregator, model = aggregator_for(plan.aggregator), initial_model(SCALING, plan.seed)
    for number in range(1, plan.rounds + 1):
        results = []
        for site, task in tasks.items():
            seed = job_seed(plan.seed, number, site)
            results.append(
                task.train(model, TrainingJob(run="r", round=number, site=site, training=plan.training, seed=seed))
            )
        updates_ND = np.array([result.model.trainable_D - model.trainable_D for result in results])
        aggregate = aggregator(updates_ND, [result.num_examples for result in results])
        model = replace(model, trainable_D=model.trainable_D + aggregate.update_D)
    return model


@pytest.fixture(scope="module")
def honest_accuracy() -> float:
    return quality(federated(TASKS, heart_plan()), split=0).accuracy


@pytest.mark.parametrize("name", ["median", "geometric-median", "centered-clipping"])
def test_other_rules_hold_as_well(name: str, honest_accuracy: float) -> None:
    tasks = {**TASKS, ATTACKER: attacker_for(attack="ipm")}
    accuracy = quality(federated(tasks, plan_for(None, "ipm", name)), split=0).accuracy
    assert accuracy >= honest_accuracy - 0.02


def demonstrated(folder: Path, *, rounds: int | None = None, **under: str) -> dict[str, Any]:
    """What the demonstration, in processes of its own, writes down."""
    path = folder / "result.json"
    run(rounds=rounds, split=0, keep=None, json_file=path, **under)
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def test_nobody_is_left_out_of_an_honest_federation(tmp_path: Path) -> None:
    result = demonstrated(tmp_path, rounds=2)
    assert (result["attack"], result["aggregator"], result["attacker"], result["left_out"]) == (None, "mean", None, {})
    assert result["protection"] == "masks"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_multi_krum_keeps_the_honest_accuracy(tmp_path: Path, honest_accuracy: float) -> None:
    result = demonstrated(tmp_path, attack="ipm", aggregator="multi-krum")
    assert (result["attack"], result["aggregator"], result["attacker"]) == ("ipm", "multi-krum", ATTACKER)
    assert result["pre"] == ["nnm"]
    assert abs(result["accuracy"] - honest_accuracy) <= 0.02
    assert result["left_out"] == {ATTACKER: list(range(1, 31))}
    assert set(result["per_site"]) == set(HOSPITALS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_mean_fails_visibly(tmp_path: Path, honest_accuracy: float) -> None:
    result = demonstrated(tmp_path, attack="ipm", aggregator="mean")
    assert result["accuracy"] < honest_accuracy - 0.2
    assert result["left_out"] == {}
