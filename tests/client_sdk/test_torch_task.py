"""Training a torch task: its arithmetic, its determinism and its ends."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from foedus.client_sdk.schedule import epoch_order
from foedus.client_sdk.task import Task, TrainingJob
from foedus.client_sdk.torch_task import TorchTask
from foedus.clock import ManualClock
from foedus.errors import ConfigError, InvalidUpdate, LayoutMismatch
from foedus.layout import Role
from foedus.plan import LocalTraining
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import IterableDataset, TensorDataset

NUM, FEATURES = 21, 4


def examples(num: int = NUM, seed: int = 0) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(num, FEATURES, generator=draw), torch.randn(num, 1, generator=draw))


def squares(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return mse_loss(model(batch[0]), batch[1])


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.3), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 1))


def task(**changes) -> TorchTask:
    values = {"name": "t", "model": network, "loss": squares, "train_data": examples} | changes
    return TorchTask(**values)


def job(training: LocalTraining | None = None, **changes) -> TrainingJob:
    values = {"run": "r", "round": 2, "site": "s", "seed": 11, "training": training or LocalTraining(epochs=2)}
    return TrainingJob(**(values | changes))


def test_a_user_wraps_what_they_have_in_ten_lines() -> None:
    x = torch.randn(60, 3)
    y = (x.sum(1) > 0).long()
    wrapped: Task = TorchTask(
        name="mine",
        model=lambda: nn.Linear(3, 2),
        loss=lambda model, batch: cross_entropy(model(batch[0]), batch[1]),
        train_data=lambda: TensorDataset(x, y),
        test_data=lambda: list(zip(x, y, strict=True)),
    )
    received = wrapped.initial(seed=1)
    result = wrapped.train(received, job(LocalTraining(epochs=20, batch_size=10, learning_rate=0.5)))
    assert (result.num_examples, result.num_steps) == (60, 120)
    before, after = wrapped.evaluate(received), wrapped.evaluate(result.model)
    assert after.num_examples == 60
    assert after.metrics["loss"] < 0.5 * before.metrics["loss"]


@pytest.mark.parametrize(
    ("training", "make"),
    [
        (LocalTraining(epochs=3, batch_size=8, learning_rate=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            LocalTraining(epochs=3, batch_size=8, learning_rate=0.1, momentum=0.9, weight_decay=0.01),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        ),
        (
            LocalTraining(epochs=3, batch_size=8, optimizer="adam", learning_rate=0.02, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, lr=0.02, weight_decay=0.1),
        ),
        (
            LocalTraining(epochs=3, batch_size=8, optimizer="adamw", learning_rate=0.02, weight_decay=0.1),
            lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
        ),
        (
            LocalTraining(epochs=3, batch_size=8, optimizer="adamw", learning_rate=0.02),
            lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.0),
        ),
    ],
    ids=["sgd", "sgd-momentum", "adam", "adamw", "adamw-without-decay"],
)
def test_training_equals_a_plain_torch_loop_bit_for_bit(training: LocalTraining, make) -> None:
    def plain() -> nn.Module:
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))

    ours = task(model=plain)
    received = ours.initial(5)
    result = ours.train(received, job(training))

    torch.manual_seed(5)
    model = plain()
    optimizer = make(model.parameters())
    x, y = examples().tensors
    losses = []
    for epoch in range(3):
        order = torch.from_numpy(epoch_order(11, epoch, NUM))
        for start in range(0, NUM, 8):
            rows = order[start : start + 8]
            optimizer.zero_grad()
            loss = mse_loss(model(x[rows]), y[rows])
            losses += [loss.item()] * len(rows)
            loss.backward()
            optimizer.step()
    expected = {name: value.numpy() for name, value in model.state_dict().items()}
    assert result.num_steps == 9
    for name, value in result.model.arrays().items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert result.metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-12)
    assert result.model.arrays()["2.num_batches_tracked"] == 9


def test_the_same_job_gives_the_same_bits_and_another_seed_does_not() -> None:
    ours = task()
    received = ours.initial(0)
    untouched = received.trainable_D.copy()
    first, again, other = (ours.train(received, job(seed=seed)).model for seed in (11, 11, 12))
    np.testing.assert_array_equal(first.trainable_D, again.trainable_D)
    np.testing.assert_array_equal(first.buffers_B, again.buffers_B)
    assert not np.array_equal(first.trainable_D, other.trainable_D)
    np.testing.assert_array_equal(received.trainable_D, untouched)


def test_initial_models_follow_the_seed() -> None:
    ours = task()
    np.testing.assert_array_equal(ours.initial(4).trainable_D, ours.initial(4).trainable_D)
    assert not np.array_equal(ours.initial(4).trainable_D, ours.initial(5).trainable_D)


def test_augmentation_by_numpy_or_random_is_seeded_too() -> None:
    def noisy(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return mse_loss(model(batch[0]), batch[1] + float(np.random.rand()) + random.random())

    ours = task(loss=noisy)
    received = ours.initial(0)
    results = [ours.train(received, job()).model.trainable_D for _ in range(2)]
    np.testing.assert_array_equal(*results)


def test_sites_that_train_in_threads_of_one_process_do_not_disturb_each_other() -> None:
    ours = task()
    received = ours.initial(0)
    work = [job(LocalTraining(steps=40, batch_size=6), seed=seed) for seed in range(4)]
    expected = [ours.train(received, one).model.trainable_D for one in work]
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda one: ours.train(received, one).model.trainable_D, work))
    np.testing.assert_array_equal(got, expected)


def test_every_step_draws_something_else() -> None:
    draws: list[tuple[float, float, float]] = []

    def drawing(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        draws.append((torch.rand(1).item(), float(np.random.rand()), random.random()))
        return squares(model, batch)

    ours = task(loss=drawing)
    ours.train(ours.initial(0), job(LocalTraining(steps=20)))
    assert [len(set(kind)) for kind in zip(*draws, strict=True)] == [20, 20, 20]


def test_the_host_applications_randomness_is_left_alone() -> None:
    def draws() -> tuple[float, float, float]:
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    def seed() -> None:
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)

    ours = task(test_data=examples)
    seed()
    expected = draws()
    seed()
    ours.evaluate(ours.train(ours.initial(3), job()).model)
    assert draws() == expected
    seed()
    with pytest.raises(InvalidUpdate):
        task(loss=lambda m, b: squares(m, b) * float("nan")).train(ours.initial(3), job())
    assert draws() == expected


def test_a_job_asked_to_stop_returns_what_it_has() -> None:
    reports: list[int] = []
    ours = task()
    received = ours.initial(0)
    training = LocalTraining(steps=50, batch_size=4)
    partial = ours.train(received, job(training, report=reports.append, should_stop=lambda: len(reports) == 3))
    assert reports == [1, 2, 3]
    assert (partial.num_steps, partial.num_examples) == (3, NUM)
    exactly = ours.train(received, job(LocalTraining(steps=3, batch_size=4)))
    np.testing.assert_array_equal(partial.model.trainable_D, exactly.model.trainable_D)


def test_a_job_out_of_time_returns_what_it_has() -> None:
    clock = ManualClock()
    training = LocalTraining(steps=50, max_seconds=10)
    result = task().train(task().initial(0), job(training, clock=clock, report=lambda _: clock.advance(2.5)))
    assert result.num_steps == 4


def test_a_job_stopped_before_its_first_step_weighs_nothing() -> None:
    received = task().initial(0)
    result = task().train(received, job(should_stop=lambda: True))
    assert (result.num_steps, result.num_examples, dict(result.metrics)) == (0, 0, {})
    np.testing.assert_array_equal(result.model.trainable_D, received.trainable_D)


def test_a_site_without_examples_weighs_nothing() -> None:
    ours = task(train_data=list, test_data=list)
    received = ours.initial(0)
    result = ours.train(received, job())
    assert (result.num_examples, result.num_steps) == (0, 0)
    assert result.model is received
    assert ours.evaluate(received).num_examples == 0
    assert task().evaluate(received).num_examples == 0


def test_a_loss_that_is_not_finite_names_its_step() -> None:
    calls = 0

    def breaks(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return squares(model, batch) * (float("inf") if calls == 4 else 1.0)

    with pytest.raises(InvalidUpdate, match="loss is inf at step 4 of round 2"):
        task(loss=breaks).train(task().initial(0), job(LocalTraining(steps=9)))


def test_a_last_step_into_infinity_is_refused() -> None:
    diverging = LocalTraining(steps=1, batch_size=NUM, learning_rate=3e38)
    with pytest.raises(InvalidUpdate, match="not finite"):
        task(loss=lambda m, b: 1e3 * squares(m, b)).train(task().initial(0), job(diverging))


def test_wrong_pieces_are_refused_with_what_was_seen() -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            yield 0

    received = task().initial(0)
    with pytest.raises(ConfigError, match="Stream, which has no length"):
        task(train_data=Stream).train(received, job())
    with pytest.raises(ConfigError, match=r"shape \(21, 1\), expected one number"):
        task(loss=lambda m, b: (m(b[0]) - b[1]) ** 2).train(received, job())
    with pytest.raises(LayoutMismatch, match="task 't' differs"):
        task(model=lambda: nn.Linear(FEATURES, 1)).train(received, job())
    with pytest.raises(ConfigError, match="unknown device 'warp'"):
        task(device="warp").train(received, job())
    with pytest.raises(ConfigError, match="measures 'loss' itself"):
        task(test_data=examples, metrics=lambda m, b: {"loss": 1.0}).evaluate(received)


def test_evaluation_weighs_by_examples_in_evaluation_mode() -> None:
    x, y = examples().tensors
    seen = []

    def metrics(model: nn.Module, batches) -> dict[str, float]:
        seen.append((model.training, torch.is_grad_enabled(), len(batches)))
        outputs = torch.cat([model(batch[0]) for batch in batches])
        again = torch.cat([model(batch[0]) for batch in batches])
        assert torch.equal(outputs, again)  # dropout is off, and the batches can be walked twice
        return {"median": outputs.median()}

    ours = task(test_data=examples, metrics=metrics, evaluation_batch_size=8)
    model = ours.initial(1)
    measured = ours.evaluate(model)
    torch.manual_seed(1)
    plain = network().eval()
    assert seen == [(False, False, 3)]
    assert measured.num_examples == NUM
    assert measured.metrics["loss"] == pytest.approx(mse_loss(plain(x), y).item(), rel=1e-5)
    assert measured.metrics["median"] == pytest.approx(plain(x).median().item(), rel=1e-5)
    assert type(measured.metrics["median"]) is float


def test_a_module_shared_by_the_site_keeps_its_modes() -> None:
    shared = network()
    shared[3].eval()
    ours = task(model=lambda: shared, test_data=examples)
    ours.evaluate(ours.train(ours.initial(0), job()).model)
    assert [part.training for part in shared] == [True, True, True, False, True]


def test_frozen_parameters_neither_move_nor_get_lost() -> None:
    def adapter() -> nn.Module:
        model = nn.Sequential(nn.Linear(FEATURES, 6), nn.Linear(6, 1))
        model[0].requires_grad_(False)
        return model

    ours = task(model=adapter)
    received = ours.initial(2)
    trained = ours.train(received, job()).model
    assert trained.frozen == received.frozen
    assert len(trained.layout.of(Role.FROZEN)) == 2
    assert not np.array_equal(trained.trainable_D, received.trainable_D)


def test_a_loop_of_ones_own() -> None:
    def own(model: nn.Module, data, job: TrainingJob) -> tuple[int, dict[str, float]]:
        assert model.training
        with torch.no_grad():
            for step in range(4):
                model.weight.add_(1.0)
                job.report(step + 1)
        return len(data) // 2, {"own": 3}

    reports: list[int] = []
    ours = task(model=lambda: nn.Linear(2, 1), train_function=own)
    received = ours.initial(0)
    result = ours.train(received, job(report=reports.append))
    np.testing.assert_allclose(result.model.arrays()["weight"] - received.arrays()["weight"], 4, rtol=1e-6)
    assert (result.num_examples, result.num_steps, dict(result.metrics)) == (NUM // 2, 4, {"own": 3.0})
    assert reports == [1, 2, 3, 4]


def test_half_precision_models_train() -> None:
    x, y = examples().tensors
    half = TensorDataset(x.bfloat16(), y.bfloat16())
    ours = task(model=lambda: nn.Linear(FEATURES, 1, dtype=torch.bfloat16), train_data=lambda: half)
    received = ours.initial(0)
    result = ours.train(received, job(LocalTraining(epochs=5, learning_rate=0.1)))
    assert result.model.trainable_D.dtype == np.float32
    assert np.abs(result.model.trainable_D - received.trainable_D).max() > 0.01
