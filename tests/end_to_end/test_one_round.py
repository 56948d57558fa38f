"""The smallest whole round, exactly computed."""

from __future__ import annotations

import numpy as np
from loopback import loopback, update_bytes


async def test_two_updates_become_their_weighted_mean(tmp_path):
    async with loopback(tmp_path) as local:
        a, b = local.site("a"), local.site("b")
        await a.connect()
        await b.connect()
        run = await local.submit()
        order_a, order_b = await a.hear("assignment"), await b.hear("assignment")
        assert (order_a.task, order_a.cohort_size, order_a.work) == ("toy", 2, order_b.work)
        assert (await a.upload(order_a, update_bytes(1.0, buffers=3.0, counter=9), num_examples=30)).accepted
        assert (await b.upload(order_b, update_bytes(5.0), num_examples=10, metrics={"loss": 0.5})).accepted
        shown = await local.ended(run)
        assert (shown.state, shown.round) == ("finished", 1)
        model = local.model(shown.last_sha256)
        np.testing.assert_array_equal(model.trainable_D, np.full(4, 2.0, np.float32))
        np.testing.assert_array_equal(model.buffers_B, np.full(2, 2.5, np.float32))
        np.testing.assert_array_equal(model.counters_C, [9])
        assert dict(shown.rounds[0].training_metrics) == {"loss": 0.5}
        assert (await a.hear("release")).outcome == 1
        assert [p.verdict for p in shown.rounds[0].participations] == ["accepted", "accepted"]
