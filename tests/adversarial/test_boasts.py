"""A site that boasts of the model: what it says it measured must neither end a run nor choose its best model."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from foedus.protos.messages import Evaluation
from foedus.protos.wire import site_message_to_pb, work_from_pb
from loopback import loopback, plan

pytestmark = pytest.mark.adversarial

UPDATE = np.array([1, 1, 1, 1, 1, 1], np.float32).tobytes() + np.int64(3).tobytes()
AUC = {"a": 0.5, "b": 0.52, "c": 0.54, "d": 0.56}


@pytest.mark.parametrize(
    ("aggregator", "boast", "auc", "state"),
    [
        ({"name": "median"}, 1.0, 0.54, "running"),
        ({"name": "median"}, 1e308, 0.54, "running"),
        ({"name": "median"}, -1e308, 0.52, "running"),
        ({"name": "mean", "max_examples": 300}, 1.0, 0.624, "running"),  # bounded, and no more
        ({"name": "mean"}, 1.0, 0.99943, "finished"),
    ],
)
async def test_a_boast_moves_what_the_rule_lets_it_move(tmp_path, aggregator, boast, auc, state):
    async with loopback(tmp_path) as local:
        sites = [local.site(name) for name in [*AUC, "eve"]]
        for site in sites:
            await site.connect()
        evaluation = {"every": 1, "metric": "auc", "target": 0.95}
        cohort = {"count": 5, "deadline_seconds": 60}
        run = await local.submit(plan(rounds=5, cohort=cohort, aggregator=aggregator, evaluation=evaluation))
        for site in sites:
            assert (await site.upload(await site.hear("assignment"), UPDATE)).accepted
        for site in sites:
            order = await site.hear("assignment")
            examples, value = (300, AUC[site.name]) if site.name in AUC else (10**12, boast)
            said = Evaluation(work_from_pb(order.work), order.model_sha256, examples, {"auc": value})
            site.say(site_message_to_pb(said))
        async with asyncio.timeout(60):
            while local.fed.rounds.find(run, 1).state != "evaluated":
                await asyncio.sleep(0.01)
        shown = await local.show(run)
        assert shown.rounds[0].evaluation_metrics["auc"] == pytest.approx(auc, rel=1e-3)
        if state == "finished":
            shown = await local.ended(run)
        assert shown.state == state
