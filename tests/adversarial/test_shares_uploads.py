"""What a site may upload in the place of its shares: refused, and the round goes on without it."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
from foedus.privacy.secagg.sharing_updates import share_update
from foedus.privacy.secagg.signing import Kind, Signed, sign
from real_sites import serving
from secure_trial import VALUES, secure_plan, secure_trial
from shared_sums import POLICY

pytestmark = pytest.mark.adversarial


def spoilt_box(dealt: bytes) -> bytes:
    return dealt[:-1] + bytes([dealt[-1] ^ 1])


def another_kind(dealt: bytes) -> bytes:
    return bytes([Kind.AGREE]) + dealt[1:]


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (lambda dealt: dealt[:-1], "LayoutMismatch", "its layout needs"),
        (lambda dealt: dealt + b"\0", "LayoutMismatch", "its layout needs"),
        (lambda dealt: bytes(len(dealt)), "SecureSumFailed", "there is no message of kind 0"),
        (spoilt_box, "SecureSumFailed", "the boxes are not those that were signed"),
        (another_kind, "SecureSumFailed", "the signature on the agree message"),
    ],
)
async def test_what_is_no_deal_of_its_site_is_refused(tmp_path, change, code, reason):
    async with secure_trial(tmp_path) as trial:
        await trial.enrol(*VALUES)
        await trial.enrol(7.0, names=("eve",))
        trial.sign()
        async with serving(trial.local, *trial.homes[:5]):
            eve = await trial.raw(trial.homes[5])
            eve.site.member = dataclasses.replace(eve.site.member, policy=POLICY)
            wanted = secure_plan(
                6, protection="shares", aggregator={"name": "mean"}, secure={"scale": 1024, "wrong_holders": 0}
            )
            run = await trial.submit(wanted)
            await eve.hear(Kind.KEY_LIST)
            step = share_update(eve.site.state, np.full(3, 7.0, np.float32), eve.site.member)
            data = change(step.words.tobytes())
            signed = sign(
                eve.site.member.key, Kind.MASKED, Signed.from_bytes(step.reply).sid, hashlib.sha256(data).digest()
            )
            receipt = await eve.upload(data, signed.to_bytes())
            assert (receipt.accepted, receipt.code) == (False, code)
            assert reason in receipt.reason
            await trial.is_the_mean_of(run, *VALUES)
