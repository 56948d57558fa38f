"""One run whose model is gone is paused, and takes nothing else with it."""

from __future__ import annotations

import numpy as np
from foedus.layout import layout_of
from foedus.modelfile import Model
from foedus.server.history import RunState
from loopback import loopback, plan, toy_model, update_bytes


def other_model():
    arrays = {"w": np.ones(4, np.float32)}
    return Model.of(layout_of(arrays), arrays)


async def test_a_lost_model_stops_no_other_run(tmp_path):
    async with loopback(tmp_path) as local:
        fed, site = local.fed, local.site("a")
        await site.connect()
        wanted = plan(cohort={"count": 1, "quorum": 1, "deadline_seconds": 60})
        lost = await local.submit(wanted, other_model())
        order = await site.hear("assignment")
        assert order.work.run == lost
        sound = await local.submit(wanted, toy_model())
        order = await site.hear("assignment")
        assert order.work.run == sound
        fed.blobs.path(fed.runs.find(lost).initial_sha256).unlink()

        # Downloads of the other run, first while both run, then while the damaged one is paused.
        assert len(await site.download(order.model_sha256)) == order.model_bytes
        await site.connect()
        assert (await site.hear("assignment")).work.run == sound
        run = fed.runs.find(lost)
        assert (run.state, "there is no model" in run.reason) == (RunState.PAUSED, True)
        assert len(await site.download(order.model_sha256)) == order.model_bytes
        assert (await site.upload(order, update_bytes(1.0))).accepted
        assert (await local.ended(sound)).state == "finished"
