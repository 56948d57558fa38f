"""Sums with noise between real sites and a real server: as much of it as the plan says, whatever restarts."""

from __future__ import annotations

import asyncio
import json
import logging
import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.client_sdk import delivery
from foedus.client_sdk.preview import preview
from foedus.client_sdk.site import Site
from foedus.client_sdk.transfer import upload
from foedus.errors import ConfigError, ConnectionFailed, PolicyRefused
from foedus.layout import layout_of
from foedus.modelfile import Model
from foedus.privacy.secagg.signing import Signed, site_id
from foedus.protos.messages import Phase, Work
from loopback import loopback, plan, typed
from real_sites import serving
from secure_federation import enrolled, sign_roster

NUM_VALUES = 4000
VALUES = (0.05, -0.1, 0.2, 0.025, 0.1)  # no update is longer than the clip norm, so that the mean is known
CLIP_NORM = 15.0
FAR = 8  # standard deviations
# With so coarse a scale the tables from which the noise is drawn are quickly made.
NOISE = {"clip_norm": CLIP_NORM, "scale": 256.0, "noise": "skellam", "noise_multiplier": 1.0}


TOML = """
name = "toy"
task = "toy"
rounds = 1
protection = "masks"
[training]
steps = 1
[cohort]
minimum = 6
quorum = 5
[secure]
"""


@pytest.fixture
def operator():
    return Ed25519PrivateKey.generate()


def initial():
    arrays = {"w": np.zeros(NUM_VALUES, np.float32)}
    return Model.of(layout_of(arrays), arrays)


def noisy_plan(num_sites=5, quorum=5, noise="skellam", **changes):
    values = {
        "protection": "masks",
        "cohort": {"minimum": num_sites, "quorum": quorum, "deadline_seconds": 30},
        "secure": {**NOISE, "noise": noise, **changes.pop("secure", {})},
    }
    return plan(**{**values, **changes})


async def sites_of(local, operator, values, **options):
    homes = [
        await enrolled(local, operator, f"site-{n:02}", value, num_values=NUM_VALUES, **options)
        for n, value in enumerate(values)
    ]
    sign_roster(local, operator)
    return homes


def require_off_by(model, mean, deviation):
    """Every coordinate, all together and their spread are what such noise makes of the mean."""
    error_D = model.trainable_D.astype(np.float64) - mean
    assert np.abs(error_D).max() < FAR * deviation
    assert abs(error_D.mean()) < FAR * deviation / math.sqrt(NUM_VALUES)
    assert abs(error_D.std() / deviation - 1) < FAR / math.sqrt(2 * NUM_VALUES)
    assert len(np.unique(error_D)) > NUM_VALUES / 2


@pytest.fixture
def spent(monkeypatch):
    """The fields of what sites say about what they have spent, as they say it."""
    said: asyncio.Queue[dict] = asyncio.Queue()

    class Listening(logging.Handler):
        def emit(self, record):
            assert record.getMessage() == "privacy_spent"
            said.put_nowait(record.fields)

    listening, log = Listening(), logging.getLogger("foedus.client_sdk.spent")
    monkeypatch.setattr(log, "handlers", [listening])
    monkeypatch.setattr(log, "level", logging.INFO)
    return said


def gaussian_epsilon(multiplier, delta):
    """ε of the Gaussian mechanism (Mironov 2017, corollary 3; Canonne et al. 2020, proposition 12)."""
    order_A = np.linspace(1.01, 100, 10_000)
    divergence_A = order_A / (2 * multiplier**2)
    return (divergence_A + np.log1p(-1 / order_A) - np.log(delta * order_A) / (order_A - 1)).min()


@pytest.mark.parametrize("noise", ["skellam", "discrete-gaussian"])
async def test_a_mean_under_masks_has_the_noise_that_the_plan_says(tmp_path, operator, noise, spent):
    async with loopback(tmp_path) as local:
        homes = await sites_of(local, operator, VALUES)
        async with serving(local, *homes):
            run = await local.submit(noisy_plan(noise=noise), initial())
            shown = await local.ended(run)
            async with asyncio.timeout(60):
                costs = [await spent.get() for _ in VALUES]
        assert (shown.state, shown.reason) == ("finished", "")
        # Each of five adds so much that four, of whom none colludes, have it all.
        require_off_by(local.model(shown.last_sha256), np.mean(VALUES), CLIP_NORM * math.sqrt(5 / 4) / 5)
    # Rounding makes an update a little longer, and noise of whole numbers is not quite Gaussian.
    least = gaussian_epsilon(1.0, 1e-6)
    for cost in costs:
        assert least <= cost.pop("epsilon") < 1.01 * least
    assert costs == [{"run": run, "round": 1, "delta": 1e-6}] * 5
    assert spent.empty()


async def test_means_of_groups_have_noise_each(tmp_path, operator):
    policy = "secure = { colluding_percent_in_groups = 13 }\n"
    async with loopback(tmp_path) as local:
        homes = await sites_of(local, operator, VALUES * 3, policy=policy)
        async with serving(local, *homes):
            wanted = noisy_plan(15, 15, protection="groups", secure={"colluders": 2})
            shown = await local.ended(await local.submit(wanted, initial()))
        assert (shown.state, shown.reason) == ("finished", "")
        # Two of five may collude in a group, so that three have it all; the mean is of three groups.
        require_off_by(local.model(shown.last_sha256), np.mean(VALUES), CLIP_NORM * math.sqrt(5 / 3) / 5 / math.sqrt(3))


async def test_a_site_that_demands_more_noise_says_so_in_a_round_as_in_a_preview(tmp_path, operator):
    wanted = noisy_plan(6, 5)
    async with loopback(tmp_path) as local:
        homes = await sites_of(local, operator, VALUES)
        strict = await enrolled(
            local, operator, "strict", 0.1, num_values=NUM_VALUES, policy="[secure]\nmin_noise_multiplier = 1.5\n"
        )
        sign_roster(local, operator)
        async with serving(local, *homes, strict):
            run = await local.submit(wanted, initial())
            shown = await local.ended(run)
        assert shown.state == "finished"
        part = local.fed.participations.find(Work(run, 1, Phase.TRAIN), "strict")
        require_off_by(local.model(shown.last_sha256), np.mean(VALUES), CLIP_NORM * math.sqrt(5 / 3) / 5)
    told = "policy: the noise multiplier is 1, this site expects at least 1.5"
    assert (str(part.verdict), part.code, part.reason) == ("refused", "PolicyRefused", told)
    path = tmp_path / "plan.toml"
    path.write_text(TOML + "\n".join(f"{key} = {json.dumps(value)}" for key, value in NOISE.items()))
    with pytest.raises(PolicyRefused) as refused:
        preview(strict.path, "toy", tmp_path / "out", model=None, plan=path)
    assert str(refused.value) == told


async def test_noise_and_weights_do_not_go_together(tmp_path):
    async with loopback(tmp_path) as local:
        with pytest.raises(ConfigError, match=r"all updates weigh the same: leave aggregator\.weighting out"):
            await typed(local.submit(noisy_plan(aggregator={"weighting": "examples"}), initial()))


async def test_a_site_started_again_after_masking_sends_the_same_words(tmp_path, operator, monkeypatch):
    sent, broken = {}, asyncio.Event()

    async def noted(connect, parcel, moved):
        sender = Signed.from_bytes(parcel.header.masked).sender
        sent.setdefault(sender, []).append(bytes(parcel.words))
        if sender == first and len(sent[sender]) == 1:
            broken.set()
            raise ConnectionFailed("the line is cut")
        return await upload(connect, parcel, moved)

    monkeypatch.setattr(delivery, "upload", noted)
    async with loopback(tmp_path) as local:
        homes = await sites_of(local, operator, VALUES)
        first = site_id(homes[0].signer().public_key().public_bytes_raw())
        async with serving(local, *homes[1:]):
            site = asyncio.create_task(Site.from_home(homes[0].path).serve())
            run = await local.submit(noisy_plan(), initial())
            await broken.wait()
            site.cancel()
            await asyncio.gather(site, return_exceptions=True)
            site = asyncio.create_task(Site.from_home(homes[0].path).serve())
            shown = await local.ended(run)
            site.cancel()
            await asyncio.gather(site, return_exceptions=True)
        assert (shown.state, shown.reason) == ("finished", "")
        assert {part.verdict for part in shown.rounds[0].participations} == {"accepted"}
    assert len(sent) == 5
    once, again = sent[first]
    assert once == again
    assert len(once) == 4 * NUM_VALUES
