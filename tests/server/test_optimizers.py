"""Each optimizer against a plain Python reference, coordinate by coordinate, over several rounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from foedus.plan import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi, ServerOptimizerPlan
from foedus.server.optimizers import ServerOptimizer, optimizer_for

Reference = Callable[[float, list[float]], float]


def _fedavg(w: float, deltas: list[float]) -> float:
    for d in deltas:
        w += 0.7 * d
    return w


def _fedavgm(w: float, deltas: list[float]) -> float:
    u = 0.0
    for d in deltas:
        u = 0.8 * u + d
        w += 0.5 * u
    return w


def _adaptive(second: Callable[[float, float], float], beta1: float, tau: float, eta: float) -> Reference:
    def run(w: float, deltas: list[float]) -> float:
        m, v = 0.0, tau * tau
        for d in deltas:
            m = beta1 * m + (1 - beta1) * d
            v = second(v, d * d)
            w += eta * m / (math.sqrt(v) + tau)
        return w

    return run


def _yogi(v: float, square: float) -> float:
    return v - 0.02 * square * ((v > square) - (v < square))


CASES: list[tuple[ServerOptimizerPlan, Reference]] = [
    (FedAvg(learning_rate=0.7), _fedavg),
    (FedAvgM(name="fedavgm", learning_rate=0.5, momentum=0.8), _fedavgm),
    (
        FedAdam(name="fedadam", learning_rate=0.1, beta1=0.9, beta2=0.98, tau=0.01),
        _adaptive(lambda v, square: 0.98 * v + 0.02 * square, 0.9, 0.01, 0.1),
    ),
    (
        FedYogi(name="fedyogi", learning_rate=0.1, beta1=0.9, beta2=0.98, tau=0.01),
        _adaptive(_yogi, 0.9, 0.01, 0.1),
    ),
    (FedAdagrad(name="fedadagrad", learning_rate=0.1, tau=0.01), _adaptive(lambda v, sq: v + sq, 0.0, 0.01, 0.1)),
]
NAMES = [plan.name for plan, _ in CASES]


def _run(
    optimizer: ServerOptimizer, w_D: np.ndarray, deltas_RD: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    states = tuple(np.full(w_D.size, value, np.float32) for value in optimizer.initial_states)
    for delta_D in deltas_RD:
        w_D, states = optimizer.step(w_D, delta_D, states)
        assert w_D.dtype == np.float32
        assert all(state.dtype == np.float32 for state in states)
    return w_D, states


def _deltas(rounds: int, size: int) -> np.ndarray:
    # Several magnitudes around τ, so that Yogi's sign takes both values.
    rng = np.random.default_rng(5)
    return (rng.standard_normal((rounds, size)) * 10.0 ** rng.uniform(-4, 0, size)).astype(np.float32)


@pytest.mark.parametrize(("plan", "reference"), CASES, ids=NAMES)
def test_matches_the_paper(plan: ServerOptimizerPlan, reference: Reference) -> None:
    w_D, deltas_RD = np.random.default_rng(1).standard_normal(50).astype(np.float32), _deltas(8, 50)
    got_D, _ = _run(optimizer_for(plan), w_D, deltas_RD)
    expected_D = [reference(float(w), [float(d) for d in deltas]) for w, deltas in zip(w_D, deltas_RD.T, strict=True)]
    np.testing.assert_allclose(got_D, expected_D, rtol=0, atol=2e-6)


def _squares_m(w: float, deltas: list[float]) -> float:
    m, v = 0.0, 0.01 * 0.01
    for d in deltas:
        m = 0.9 * m + 0.1 * d
        v = 0.98 * v + 0.02 * m * m
        w += 0.1 * m / (math.sqrt(v) + 0.01)
    return w


def _corrects_bias(w: float, deltas: list[float]) -> float:
    m, v = 0.0, 0.01 * 0.01
    for t, d in enumerate(deltas, 1):
        m, v = 0.9 * m + 0.1 * d, 0.98 * v + 0.02 * d * d
        w += 0.1 * m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.98**t)) + 0.01)
    return w


@pytest.mark.parametrize("wrong", [_squares_m, _corrects_bias])
def test_the_classic_errors_are_told_apart(wrong: Reference) -> None:
    deltas_RD = _deltas(8, 50)
    got_D, _ = _run(optimizer_for(CASES[2][0]), np.zeros(50, np.float32), deltas_RD)
    wrong_D = [wrong(0.0, [float(d) for d in deltas]) for deltas in deltas_RD.T]
    assert np.abs(got_D - wrong_D).max() > 0.01


@pytest.mark.parametrize("plan", [plan for plan, _ in CASES], ids=NAMES)
def test_coordinates_do_not_see_each_other_nor_change_their_inputs(plan: ServerOptimizerPlan) -> None:
    optimizer, w_D, deltas_RD = optimizer_for(plan), np.linspace(-1, 1, 37, dtype=np.float32), _deltas(4, 37)
    w_D.setflags(write=False)
    deltas_RD.setflags(write=False)
    whole_D, states = _run(optimizer, w_D, deltas_RD)
    parts = [_run(optimizer, w_D[cut], deltas_RD[:, cut]) for cut in (slice(0, 5), slice(5, 6), slice(6, 37))]
    assert np.concatenate([part_D for part_D, _ in parts]).tobytes() == whole_D.tobytes()
    for index, state_D in enumerate(states):
        assert np.concatenate([part[index] for _, part in parts]).tobytes() == state_D.tobytes()


@pytest.mark.parametrize("plan", [plan for plan, _ in CASES[2:]], ids=NAMES[2:])
def test_the_second_moment_starts_at_tau_squared_and_stays_positive(plan: ServerOptimizerPlan) -> None:
    optimizer = optimizer_for(plan)
    assert optimizer.initial_states == (0.0, pytest.approx(1e-4))
    _, (_, v_D) = _run(optimizer, np.zeros(50, np.float32), _deltas(50, 50))
    assert (v_D > 0).all()


def test_the_plan_sets_every_parameter() -> None:
    for plan, _ in CASES:
        optimizer = optimizer_for(plan)
        for key, value in plan.model_dump().items():
            assert getattr(optimizer, key) == value


def test_overflow_comes_back_as_infinity() -> None:
    w_D, (_, v_D) = _run(
        optimizer_for(FedAdam(name="fedadam")), np.zeros(1, np.float32), np.full((1, 1), 3e38, np.float32)
    )
    assert np.isinf(v_D[0])
    assert np.isfinite(w_D[0])
