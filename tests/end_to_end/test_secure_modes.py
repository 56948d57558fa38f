"""Groups and sketches between real sites and a real server: the rule decides, and the server sees no update."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.layout import layout_of
from foedus.modelfile import Model
from loopback import loopback, plan
from real_sites import serving
from secure_federation import enrolled, sign_roster

HONEST = (0.5, 0.75, 1.0, 0.625, 0.875, 0.6875, 0.8125, 0.75, 0.5625)


def initial():
    arrays = {"w": np.zeros(3, np.float32)}
    return Model.of(layout_of(arrays), arrays)


@pytest.fixture
def operator():
    return Ed25519PrivateKey.generate()


def secure_plan(n, protection, aggregator, **secure):
    return plan(
        protection=protection,
        cohort={"minimum": n, "quorum": n, "deadline_seconds": 30},
        aggregator=aggregator,
        secure={"scale": 1024, **secure},
        rounds=2,
    )


async def test_multi_krum_over_sketches_leaves_the_liar_out(tmp_path, operator):
    async with loopback(tmp_path) as local:
        values = (*HONEST, -40.0)
        homes = [await enrolled(local, operator, f"site-{n}", value) for n, value in enumerate(values)]
        sign_roster(local, operator)
        async with serving(local, *homes):
            run = await local.submit(
                secure_plan(10, "sketch", {"name": "multi-krum", "f": 1}, clip_norm=100), initial()
            )
            shown = await local.ended(run)
        assert (shown.state, shown.reason, shown.round) == ("finished", "", 2)
        for round in shown.rounds:
            parts = {part.site: part for part in round.participations}
            assert (parts["site-9"].verdict, parts["site-9"].code) == ("rejected", "LeftOut")
            chosen = [int(site[-1]) for site, part in parts.items() if part.verdict == "accepted"]
            assert len(chosen) == 7
            assert all(part.score > 0 for part in parts.values())
        model = local.model(shown.last_sha256)
        assert 1.0 < model.trainable_D[0] < 2.0


@pytest.mark.parametrize("regroup", ["run", "round"])
async def test_the_trimmed_mean_of_groups_withstands_a_liar(tmp_path, operator, regroup):
    policy = "secure = { colluding_percent_in_groups = 13, regrouping = true }\n"
    async with loopback(tmp_path) as local:
        values = (*HONEST, *HONEST[:5], -900.0)
        homes = [
            await enrolled(local, operator, f"site-{n:02}", value, policy=policy) for n, value in enumerate(values)
        ]
        sign_roster(local, operator)
        async with serving(local, *homes):
            wanted = secure_plan(
                15, "groups", {"name": "trimmed-mean", "f": 1}, clip_norm=10000, colluders=2, regroup=regroup
            )
            shown = await local.ended(await local.submit(wanted, initial()))
        assert (shown.state, shown.reason, shown.round) == ("finished", "", 2)
        for round in shown.rounds:
            assert {part.verdict for part in round.participations} == {"accepted"}
        model = local.model(shown.last_sha256)
        assert 2 * min(HONEST) < model.trainable_D[0] < 2 * max(HONEST)
