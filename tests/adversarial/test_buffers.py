"""Poison where no rule measures it: in the buffers and counters of an update whose trained values are unremarkable."""

from __future__ import annotations

import numpy as np
import pytest
from loopback import loopback, plan

pytestmark = pytest.mark.adversarial

HONEST_W = [1.0, 1.25, 1.5, 1.75]
HONEST_BUFFERS = [0.5, 0.75, 1.0, 1.25]


def update(value, buffers, counter):
    return np.array([value, 0, 0, 0, buffers, buffers], np.float32).tobytes() + np.int64(counter).tobytes()


@pytest.mark.parametrize(
    "aggregator",
    [
        {"name": "krum", "f": 1},
        {"name": "multi-krum", "f": 1},
        {"name": "mda", "f": 1},
        {"name": "dnc", "f": 1},
        {"name": "geometric-median"},
        {"name": "centered-clipping", "clip": 1.0},
        {"name": "multi-krum", "f": 1, "pre": ["nnm"]},
        {"name": "trimmed-mean", "f": 1},
        {"name": "median", "f": 1, "pre": ["nnm"]},
        {"name": "median", "f": 1, "clip_norm": 1.0},
    ],
    ids=lambda aggregator: "-".join([aggregator["name"], *aggregator.get("pre", ())]),
)
async def test_buffers_and_counters_stay_among_the_honest(tmp_path, aggregator):
    async with loopback(tmp_path) as local:
        sites = [local.site(name) for name in "abcde"]
        for site in sites:
            await site.connect()
        cohort = {"count": 5, "deadline_seconds": 60}
        run = await local.submit(plan(cohort=cohort, aggregator=aggregator))
        updates = [update(w, b, 4) for w, b in zip(HONEST_W, HONEST_BUFFERS, strict=True)]
        updates.append(update(1.375, -1e6, 1 << 62))  # in the middle of the others
        for site, data in zip(sites, updates, strict=True):
            assert (await site.upload(await site.hear("assignment"), data)).accepted
        shown = await local.ended(run)
        assert shown.state == "finished", shown.reason
        model = local.model(shown.last_sha256)
        assert (model.buffers_B >= min(HONEST_BUFFERS)).all()
        assert (model.buffers_B <= max(HONEST_BUFFERS)).all()
        assert model.counters_C.tolist() == [4]
