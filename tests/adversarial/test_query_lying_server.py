"""A server that asks one thing and sums another: every site leaves before a share is dealt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from foedus.privacy.secagg.descriptor import Noise
from foedus.server.coordinators import query as coordinator
from foedus.server.query_descriptor import describe_query
from query_federation import asked, query_trial
from real_sites import serving

pytestmark = pytest.mark.adversarial

COUNT = {"kind": "count", "column": "age"}
NOISY = asked(COUNT, min_sites=6, noise={"multiplier": 2.0}, deadline_seconds=10.0)
LIES = {
    "without the noise": {"noise": Noise.NONE, "noise_multiplier": 0.0},
    "with less noise": {"noise_multiplier": 1e-6},
    "of fewer sites": {"min_sites": 5, "min_survivors": 5},
    "of more than it may be": {"clip_norm": 2e6},
    "as an update": {"rule": "mean"},
    "another query": {"config_digest": bytes(32)},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_a_session_that_is_not_the_querys_is_left(tmp_path, monkeypatch, lie):
    def lying(*args):
        return replace(describe_query(*args), **lie)

    monkeypatch.setattr(coordinator, "describe_query", lying)
    async with query_trial(tmp_path, 6) as trial, serving(trial.local, *trial.homes):
        shown = await trial.ask(NOISY)
        assert trial.local.fed.queries.find(shown.id).attempt == 1
    assert shown.state == "failed"
    assert {(site.verdict, site.code) for site in shown.sites} == {("refused", "PolicyRefused")}
