"""Certificates that live for seconds: sites and server renew them, and work goes on as if nothing were."""

from __future__ import annotations

import asyncio
import time

import numpy as np
from foedus.privacy.certificates import expires
from loopback import loopback, plan
from real_sites import enrolled, serving


async def test_work_goes_on_after_every_certificate_has_expired(tmp_path):
    async with loopback(tmp_path, certificate_seconds=4) as local:
        began = time.time()
        home = await enrolled(local, "a")
        first = home.certificate.read_bytes()
        async with serving(local, home):
            while time.time() < began + 5:  # the first certificates of site and server are over by then
                await asyncio.sleep(0.1)
            assert expires(first) < time.time() < expires(home.certificate.read_bytes())
            shown = await local.ended(await local.submit(plan(rounds=2, cohort={"count": 1})))
            member = local.fed.registry.member("site", "a")
            assert member.certificate_expires >= expires(first)
        assert shown.state == "finished"
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 2.0))
