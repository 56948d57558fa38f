"""Updates in shares between real sites and a real server: rules with weights, and the server sees no update."""

from __future__ import annotations

import numpy as np
import pytest
from by_definition import geometry, uniform
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.aggregators.geometric_median import GeometricMedian
from foedus.errors import ConfigError
from foedus.layout import layout_of
from foedus.modelfile import Model
from foedus.privacy.secagg.protectable import require_protectable, require_protectable_model
from foedus.protos.channel import SECURE_BYTES
from foedus.server.access import caller
from foedus.server.services.transfer import TransferService
from loopback import loopback, plan
from real_sites import serving
from secure_federation import enrolled, sign_roster

# What each site adds to three values in each round; the last one's is scaled and flipped.
HONEST_ND = np.random.default_rng(3).normal(0.5, 0.4, (9, 3)).round(2)
LIAR = 9
UNEQUAL = "secure = { unequal_weights = true }\n"
ROWS_ND = np.vstack([HONEST_ND, -20 * HONEST_ND.mean(axis=0)])


def initial() -> Model:
    arrays = {"w": np.zeros(3, np.float32)}
    return Model.of(layout_of(arrays), arrays)


@pytest.fixture
def operator():
    return Ed25519PrivateKey.generate()


def shared_plan(aggregator, **changes):
    cohort = {"minimum": 10, "quorum": 10, "deadline_seconds": 30}
    values = {"cohort": cohort, "secure": {"clip_norm": 200}, "rounds": 2, **changes}
    return plan(protection="shares", aggregator=aggregator, **values)


async def run_of(local, operator, wanted):
    """Ten sites, the last of which lies; a run to its end."""
    homes = [
        await enrolled(local, operator, f"site-{n}", row_D.tolist(), policy=UNEQUAL) for n, row_D in enumerate(ROWS_ND)
    ]
    sign_roster(local, operator)
    async with serving(local, *homes):
        return await local.ended(await local.submit(wanted, initial()))


async def test_the_geometric_median_over_shares_withstands_a_liar(tmp_path, operator):
    async with loopback(tmp_path) as local:
        shown = await run_of(local, operator, shared_plan({"name": "geometric-median", "f": 1}))
        assert (shown.state, shown.reason, shown.round) == ("finished", "", 2)
        for round in shown.rounds:
            parts = {part.site: part for part in round.participations}
            assert {part.verdict for part in parts.values()} == {"accepted"}
            assert parts["site-9"].weight < 0.3 * parts["site-0"].weight
            assert sum(part.weight for part in parts.values()) == pytest.approx(1)
            assert parts["site-9"].score > 10 * parts["site-0"].score
        model = local.model(shown.last_sha256)
    weights_N = GeometricMedian(f=1).judge(geometry(ROWS_ND), uniform(10)).combination.weights_N
    np.testing.assert_allclose(model.trainable_D, 2 * weights_N @ ROWS_ND, atol=0.01)
    assert np.abs(model.trainable_D - 2 * HONEST_ND.mean(axis=0)).max() < 0.5
    assert np.abs(ROWS_ND.mean(axis=0) - HONEST_ND.mean(axis=0)).min() > 0.8  # which the mean would not withstand


@pytest.mark.parametrize(
    "aggregator", [{"name": "multi-krum", "f": 1}, {"name": "centered-clipping", "clip": 4.0, "f": 1}]
)
async def test_other_rules_over_shares_withstand_a_liar(tmp_path, operator, aggregator):
    async with loopback(tmp_path) as local:
        shown = await run_of(local, operator, shared_plan(aggregator, rounds=1))
        assert (shown.state, shown.reason, shown.round) == ("finished", "", 1)
        parts = {part.site: part for part in shown.rounds[0].participations}
        assert parts["site-9"].verdict == ("rejected" if aggregator["name"] == "multi-krum" else "accepted")
        model = local.model(shown.last_sha256)
    assert np.abs(model.trainable_D - HONEST_ND.mean(axis=0)).max() < 0.4


async def test_a_site_that_does_not_train_in_time_is_left_out_of_the_sum(tmp_path, operator):
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, operator, f"site-{n}", row_D.tolist()) for n, row_D in enumerate(ROWS_ND)]
        (homes[LIAR].path / "hold").touch()
        sign_roster(local, operator)
        cohort = {"minimum": 10, "quorum": 9, "deadline_seconds": 1.0}
        async with serving(local, *homes):
            run = await local.submit(shared_plan({"name": "multi-krum", "f": 0}, cohort=cohort, rounds=1), initial())
            shown = await local.ended(run)
            (homes[LIAR].path / "hold").unlink()
        assert (shown.state, shown.reason) == ("finished", "")
        parts = {part.site: part for part in shown.rounds[0].participations}
        assert parts[f"site-{LIAR}"].verdict == "absent"
        chosen = [int(site[-1]) for site, part in parts.items() if part.verdict == "accepted"]
        assert len(chosen) == 7
        model = local.model(shown.last_sha256)
    np.testing.assert_allclose(model.trainable_D, HONEST_ND[chosen].mean(axis=0), atol=1e-4)


async def test_a_median_that_is_one_sites_update_is_not_shown(tmp_path, operator):
    """On a line the geometric median is one of the updates, with all the weight."""
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, operator, f"site-{n}", n / 10, policy=UNEQUAL) for n in range(10)]
        sign_roster(local, operator)
        async with serving(local, *homes):
            run = await local.submit(shared_plan({"name": "geometric-median", "f": 1}), initial())
            shown = await local.ended(run)
        assert shown.state == "failed"
        assert "does not hide an update as 5 alike do" in shown.reason


async def test_a_site_that_does_not_allow_unequal_weights_says_so_before_it_sends_anything(tmp_path, operator):
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, operator, f"site-{n}", row_D.tolist()) for n, row_D in enumerate(ROWS_ND)]
        sign_roster(local, operator)
        async with serving(local, *homes):
            run = await local.submit(shared_plan({"name": "geometric-median", "f": 1}), initial())
            shown = await local.ended(run)
        assert shown.state == "failed"
        reasons = {part.reason for round in shown.rounds for part in round.participations}
        assert any("does not allow unequal_weights" in reason for reason in reasons), (shown.reason, reasons)


# messages that are too long for a session


async def test_what_is_too_long_for_a_session_is_fetched_by_whom_it_is_for_alone(tmp_path, operator, monkeypatch):
    """With a small limit, so that a small model will do."""
    monkeypatch.setattr("foedus.server.sums.SECURE_BYTES", 30_000)
    fetched, real = [], TransferService.Download
    names = [f"site-{n}" for n in range(10)]

    async def noted(self, request, context):
        may_fetch = [name for name in names if self._fed.sums.file_for(name, request.sha256)]
        fetched.append((caller.get().name, may_fetch))
        async for chunk in real(self, request, context):
            yield chunk

    monkeypatch.setattr(TransferService, "Download", noted)
    async with loopback(tmp_path) as local:
        shown = await run_of(local, operator, shared_plan({"name": "multi-krum", "f": 1}, rounds=1))
        assert (shown.state, shown.reason) == ("finished", "")
    boxes = [(name, may_fetch) for name, may_fetch in fetched if may_fetch]  # the others are the model
    assert sorted(name for name, _ in boxes) == names
    assert all(may_fetch == [name] for name, may_fetch in boxes)
    assert not any(list((tmp_path / name / "fetched").iterdir()) for name in names)


@pytest.mark.slow
async def test_an_update_of_150_000_values_is_shared(tmp_path, operator):
    num_values = 150_000
    async with loopback(tmp_path) as local:
        values = [f"np.random.default_rng({n}).normal(0.01, 0.01, {num_values})" for n in range(10)]
        homes = [
            await enrolled(local, operator, f"site-{n}", value, num_values=num_values, policy=UNEQUAL)
            for n, value in enumerate(values)
        ]
        sign_roster(local, operator)
        wanted = shared_plan({"name": "geometric-median", "f": 1}, rounds=1)
        arrays = {"w": np.zeros(num_values, np.float32)}
        async with serving(local, *homes):
            shown = await local.ended(await local.submit(wanted, Model.of(layout_of(arrays), arrays)))
        assert (shown.state, shown.reason) == ("finished", "")
        model = local.model(shown.last_sha256)
    assert abs(model.trainable_D.mean() - 0.01) < 1e-4
    assert model.trainable_D.std() < 0.005


# plans that are refused


@pytest.mark.parametrize(
    ("aggregator", "changes", "reason"),
    [
        ({"name": "krum", "f": 1}, {}, "the sum of one is that update"),
        ({"name": "median", "f": 1}, {}, "does more than weigh"),
        ({"name": "multi-krum", "f": 1}, {"secure": {"packing": 3}}, "K = 3, D = 1 and E = 1 need 12 sites"),
        ({"name": "geometric-median", "f": 3}, {}, "need 12 sites, there are 10"),
        ({"name": "multi-krum", "f": 1}, {"secure": {"wrong_holders": 0}}, "only E = 0"),
    ],
)
def test_a_plan_that_cannot_be_done_in_shares_is_refused(aggregator, changes, reason):
    with pytest.raises(ConfigError, match=reason):
        require_protectable(shared_plan(aggregator, **changes))
    require_protectable(shared_plan({"name": "geometric-median", "f": 1}))


def test_updates_alone_are_packed():
    wanted = shared_plan({"name": "multi-krum", "f": 1}, secure={"packing": 1}).model_copy(
        update={"protection": "sketch"}
    )
    with pytest.raises(ConfigError, match=r"leave secure\.packing out"):
        require_protectable(wanted)


def test_a_model_that_is_too_large_to_be_shared_is_refused_with_the_largest_that_is_not():
    wanted = shared_plan({"name": "geometric-median", "f": 1})
    with pytest.raises(ConfigError, match=r"10 sites can share 8[0-9]{5} with one another, in 2 blocks"):
        require_protectable_model(wanted, layout_of({"w": np.zeros(900_000, np.float32)}), SECURE_BYTES)
    require_protectable_model(wanted, layout_of({"w": np.zeros(800_000, np.float32)}), SECURE_BYTES)
