from __future__ import annotations

import numpy as np
import pytest
from by_definition import geometry, uniform
from foedus.aggregators.dnc import DivideAndConquer, outlier_scores
from foedus.errors import ConfigError, TooFewUpdates
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 2**32))
def test_the_scores_are_squared_projections(n: int, d: int, seed: int) -> None:
    updates_ND = np.random.default_rng(seed).standard_normal((n, d))
    centred_ND = updates_ND - updates_ND.mean(axis=0)
    _, _, directions = np.linalg.svd(centred_ND, full_matrices=False)
    scores_N = outlier_scores(geometry(updates_ND).squared_NN)
    np.testing.assert_allclose(scores_N, (centred_ND @ directions[0]) ** 2, atol=1e-6)


def test_an_update_that_stands_out_in_one_sample_is_dropped() -> None:
    generator = np.random.default_rng(0)
    first_ND, second_ND = generator.standard_normal((2, 7, 4))
    first_ND[2] += 50
    second_ND[5] -= 50
    decision = DivideAndConquer(1, iterations=2).judge_samples([geometry(first_ND), geometry(second_ND)], uniform(7))
    assert decision.selected == (0, 1, 3, 4, 6)
    np.testing.assert_allclose(decision.weights_N, [0.2, 0.2, 0, 0.2, 0.2, 0, 0.2])  # type: ignore[arg-type]


def test_where_nobody_is_left_in_every_sample_it_is_who_is_left_in_the_most() -> None:
    samples = []
    for outlier in (0, 1, 2, 2):
        updates_ND = np.random.default_rng(outlier).standard_normal((3, 4))
        updates_ND[outlier] += 50
        samples.append(geometry(updates_ND))
    decision = DivideAndConquer(1, iterations=4).judge_samples(samples, uniform(3))
    assert decision.selected == (0, 1)


def test_an_infinite_distance_gives_an_update_away() -> None:
    generator = np.random.default_rng(0)
    updates_ND = np.sign(generator.standard_normal((40, 1))) + 0.1 * generator.standard_normal((40, 3))
    seen = geometry(updates_ND)
    seen.squared_PP[7] = seen.squared_PP[:, 7] = np.inf
    seen.squared_PP[7, 7] = 0
    decision = DivideAndConquer(1).judge_samples([seen], uniform(40))
    assert 7 not in decision.selected
    assert np.isfinite(decision.scores_N).all()  # type: ignore[arg-type]


def test_how_many_are_dropped() -> None:
    assert [DivideAndConquer(f, c=c).num_dropped for f, c in ((3, 1), (3, 0.5), (10, 1.1), (0, 1), (29, 0.01))] == [
        3,
        2,
        11,
        0,
        1,
    ]
    DivideAndConquer(2, c=2.4).require(6)
    with pytest.raises(TooFewUpdates, match=r"dnc with f = 2 and c = 2\.5 needs n > c f: at least 6 updates, got 5"):
        DivideAndConquer(2, c=2.5).require(5)
    with pytest.raises(TooFewUpdates, match="dnc with f = 2 needs n > 2f"):
        DivideAndConquer(2).judge_samples([geometry(np.ones((4, 1)))], uniform(4))


def test_equal_updates_and_one_alone() -> None:
    seen = geometry(np.ones((5, 2)))
    assert DivideAndConquer(2).judge_samples([seen], uniform(5)).selected == (0, 1, 2)
    assert DivideAndConquer(0).judge_samples([geometry(np.ones((1, 2)))], uniform(1)).selected == (0,)


def test_bad_parameters_are_refused() -> None:
    for c in (0.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="c is"):
            DivideAndConquer(1, c=c)
    with pytest.raises(ConfigError, match="coordinates is 0"):
        DivideAndConquer(1, coordinates=0)
    with pytest.raises(ConfigError, match="iterations is 0"):
        DivideAndConquer(1, iterations=0)
