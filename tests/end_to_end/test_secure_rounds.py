"""Masked rounds between real sites and a real server: the sum is exact, and the server has no update."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.layout import layout_of
from foedus.modelfile import Model
from loopback import loopback, plan
from real_sites import serving
from secure_federation import enrolled, sign_roster

VALUES = (0.5, -1.0, 2.0, 0.25, 1.0)


def secure_plan(**changes):
    values = {
        "protection": "masks",
        "cohort": {"minimum": 5, "quorum": 5, "deadline_seconds": 30},
        "aggregator": {"weighting": "uniform"},
        "secure": {"scale": 1024},
        "rounds": 2,
    }
    return plan(**{**values, **changes})


def initial():
    arrays = {"w": np.zeros(3, np.float32)}
    return Model.of(layout_of(arrays), arrays)


@pytest.fixture
def operator():
    return Ed25519PrivateKey.generate()


async def test_two_masked_rounds_end_in_the_exact_mean(tmp_path, operator):
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, operator, f"site-{n}", value) for n, value in enumerate(VALUES)]
        sign_roster(local, operator)
        async with serving(local, *homes):
            run = await local.submit(secure_plan(), initial())
            shown = await local.ended(run)
        assert (shown.state, shown.reason, shown.round) == ("finished", "", 2)
        model = local.model(shown.last_sha256)
        np.testing.assert_array_equal(model.trainable_D, np.full(3, 2 * np.float32(np.mean(VALUES))))
        parts = [part for round in shown.rounds for part in round.participations]
        assert {(part.verdict, part.num_examples, len(part.metrics)) for part in parts} == {("accepted", 0, 0)}


async def test_twelve_sites_of_whom_three_may_collude_end_in_the_exact_mean(tmp_path, operator):
    values = [n / 8 for n in range(12)]
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, operator, f"site-{n}", value) for n, value in enumerate(values)]
        sign_roster(local, operator)
        cohort = {"minimum": 12, "quorum": 12, "deadline_seconds": 30}
        async with serving(local, *homes):
            shown = await local.ended(await local.submit(secure_plan(cohort=cohort, rounds=1), initial()))
        assert (shown.state, shown.reason) == ("finished", "")
        model = local.model(shown.last_sha256)
        np.testing.assert_array_equal(model.trainable_D, np.full(3, np.float32(np.mean(values))))
