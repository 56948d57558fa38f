"""Twenty sites, each a process: robust rules over secure sums hold against liars and a loss in mid-round."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foedus.client_sdk.task import TrainingJob, job_seed
from foedus.examples.heart.data import HOSPITALS, together, training_and_test
from foedus.examples.heart.logistic import PARTS, logistic_task, task_for
from foedus.examples.heart.scaling import Scaling, scaling_of
from foedus.modelfile import Model, ModelFile
from foedus.plan import LocalTraining, Plan
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask
from foedus.simulations.local import LocalFederation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HONEST = "foedus.examples.heart.logistic:task_for"
FLIPPING = "foedus.examples.heart.attacker:flipping"
SITES = [(hospital, part) for hospital in HOSPITALS for part in range(PARTS)]
LIARS = (("cleveland", 0), ("hungary", 3))
LOST = ("va-long-beach", 4)
ROUNDS = 6
LOST_IN_ROUND = 3
TRAINING = LocalTraining(epochs=2, batch_size=8, learning_rate=0.1)
EVERYONE = together([training_and_test(hospital, 0)[0] for hospital in HOSPITALS])
TESTED = together([training_and_test(hospital, 0)[1] for hospital in HOSPITALS])
SCALING: Scaling = scaling_of(EVERYONE)


def name(site: tuple[str, int]) -> str:
    return f"{site[0]}-{site[1]}"


def initial() -> Model:
    return logistic_task(EVERYONE, TESTED, SCALING).initial(0)


def accuracy(model: Model) -> float:
    return logistic_task(EVERYONE, TESTED).evaluate(model).metrics["accuracy"]


@pytest.fixture(scope="module")
def honest_accuracy() -> float:
    """Plain averaging of all twenty, nobody lying."""
    model, tasks = initial(), {site: task_for(hospital=site[0], part=site[1]) for site in SITES}
    for number in range(1, ROUNDS + 1):
        jobs = {
            site: TrainingJob(
                run="r", round=number, site=name(site), training=TRAINING, seed=job_seed(0, number, name(site))
            )
            for site in SITES
        }
        updates_ND = [tasks[site].train(model, jobs[site]).model.trainable_D - model.trainable_D for site in SITES]
        model = replace(model, trainable_D=model.trainable_D + np.mean(updates_ND, axis=0))
    return accuracy(model)


def _wait_for_all(federation: LocalFederation) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        status = ask(federation.operator, lambda stub: stub.Status(operations_pb2.StatusRequest()))
        if status.sites_connected == len(SITES):
            return
        time.sleep(0.2)
    raise AssertionError("not all sites connected")


def run(
    folder: Path, liars: tuple[tuple[str, int], ...], policy: dict[str, Any], **plan: Any
) -> tuple[operations_pb2.Run, Model]:
    """A run of twenty sites, one of which is killed while the third round is trained."""
    with LocalFederation(folder, settings={"heartbeat_seconds": 1}) as federation:
        federation.start_server()
        for site in SITES:
            entry = FLIPPING if site in liars else HONEST
            federation.add_site(name(site), entry, {"hospital": site[0], "part": site[1]}, policy=policy)
            federation.start_site(name(site))
        federation.sign_roster()
        _wait_for_all(federation)
        wanted = Plan.model_validate(
            {
                "name": "twenty",
                "task": "heart",
                "rounds": ROUNDS,
                "cohort": {"minimum": 19, "quorum": 18, "deadline_seconds": 20},
                "training": TRAINING.model_dump(exclude_none=True),
                "evaluation": {"every": 0},
                "secure": {"clip_norm": 2.0, **plan.pop("secure", {})},
                **plan,
            }
        )
        id = federation.submit(wanted, initial())
        federation.wait(
            id, until=lambda shown: shown.round >= LOST_IN_ROUND - 1 or shown.state == "failed", seconds=300
        )
        federation.kill(name(LOST))
        shown = federation.wait(id, seconds=150)
        assert (shown.state, shown.reason) == ("finished", "")
        path = folder / "model.safetensors"
        federation.fetch(id, "last", path)
        return federation.show(id), ModelFile.open(path).read()


def test_multi_krum_over_sketches(tmp_path: Path, honest_accuracy: float) -> None:
    shown, model = run(tmp_path, LIARS, {}, protection="sketch", aggregator={"name": "multi-krum", "f": 2})
    assert abs(accuracy(model) - honest_accuracy) <= 0.02
    for round in shown.rounds:
        verdicts = {part.site: part.verdict for part in round.participations}
        assert [verdicts[name(liar)] for liar in LIARS] == ["rejected", "rejected"]


def test_the_trimmed_mean_over_groups(tmp_path: Path, honest_accuracy: float) -> None:
    policy = {"secure": {"colluding_percent_in_groups": 10}}
    aggregator = {"name": "trimmed-mean", "f": 1}
    secure = {"group_size": 5, "colluders": 2}
    shown, model = run(tmp_path, LIARS[:1], policy, protection="groups", aggregator=aggregator, secure=secure)
    # The hospitals are not alike, and who is with whom is drawn from the run's name: about nine draws in ten come
    # within .02 of the honest run, and all within .05.
    assert abs(accuracy(model) - honest_accuracy) <= 0.05
    assert shown.round == ROUNDS


def test_the_geometric_median_over_shares(tmp_path: Path, honest_accuracy: float) -> None:
    policy = {"secure": {"unequal_weights": True}}
    shown, model = run(tmp_path, LIARS, policy, protection="shares", aggregator={"name": "geometric-median", "f": 2})
    assert abs(accuracy(model) - honest_accuracy) <= 0.02
    for round in shown.rounds:
        weights = {part.site: part.weight for part in round.participations if part.verdict == "accepted"}
        assert max(weights[name(liar)] for liar in LIARS) < 1 / 20
