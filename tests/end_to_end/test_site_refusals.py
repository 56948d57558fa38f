"""The real site against the real server: what a site refuses, and where the operator reads why."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import numpy as np
import pytest
from foedus.client_sdk.site import Site
from foedus.layout import layout_of
from foedus.modelfile import Model
from loopback import loopback, plan, toy_model
from real_sites import TASK, enrolled, serving


def told(shown, site):
    return next(p for r in shown.rounds for p in r.participations if p.site == site and p.verdict != "accepted")


async def test_real_sites_train_and_evaluate(tmp_path):
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, name) for name in ("a", "b")]
        async with serving(local, *homes):
            run = await local.submit(plan(rounds=3, evaluation={"every": 1, "metric": "auc"}))
            shown = await local.ended(run)
        assert shown.state == "finished"
        assert [dict(r.evaluation_metrics)["auc"] for r in shown.rounds] == [1.0, 2.0, 3.0]
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 3.0))


@pytest.mark.parametrize(
    ("policy", "code", "reason"),
    [
        ("smallest_cohort = 3\n", "SiteVeto", "asks 2 sites, the site's policy demands at least 3"),
        ("max_rounds = 1\n", "BudgetExhausted", "trained in 1 of the run's 2 rounds, its policy allows 1"),
        ("hours = 'HOURS'\n", "SiteVeto", "works .* only"),
    ],
)
async def test_a_policys_veto_is_the_operators_to_read(tmp_path, policy, code, reason):
    later = [(datetime.now() + timedelta(hours=h)).strftime("%H:%M") for h in (6, 7)]
    async with loopback(tmp_path) as local:
        homes = [
            await enrolled(local, "free"),
            await enrolled(local, "strict", policy=policy.replace("HOURS", "-".join(later))),
        ]
        async with serving(local, *homes):
            shown = await local.ended(await local.submit(plan(rounds=2)))
        assert shown.state == "finished"
        part = told(shown, "strict")
        assert (part.verdict, part.code) == ("refused", code)
        assert re.search(reason, part.reason)
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 2.0))


@pytest.mark.adversarial
async def test_code_that_changed_since_it_was_allowed_does_not_run(tmp_path):
    async with loopback(tmp_path) as local:
        homes = [await enrolled(local, "free"), await enrolled(local, "changed")]
        (homes[1].path / "toy.py").write_text(TASK.replace("+ 1", "+ 1000"))
        async with serving(local, *homes):
            shown = await local.ended(await local.submit())
        part = told(shown, "changed")
        assert (part.verdict, part.code) == ("refused", "SiteVeto")
        assert "changed since the site allowed it" in part.reason
        np.testing.assert_array_equal(local.model(shown.last_sha256).trainable_D, np.full(4, 1.0))


async def test_a_model_of_another_layout_is_refused_by_tensor(tmp_path):
    arrays = {"w": np.zeros(5, np.float32)}
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a")
        async with serving(local, home):
            run = await local.submit(plan(cohort={"count": 1}), Model.of(layout_of(arrays), arrays))
            shown = await local.ended(run)
        assert shown.state == "failed"
        part = told(shown, "a")
        assert (part.verdict, part.code) == ("refused", "LayoutMismatch")
        assert "tensor 'w'" in part.reason
        assert "a refused (LayoutMismatch" in shown.reason
        assert "\n" not in shown.reason


async def test_a_task_that_breaks_is_told_by_name(tmp_path):
    async with loopback(tmp_path) as local:
        broken = TASK.replace("SECRET_FAULT = False", "SECRET_FAULT = True")
        homes = [await enrolled(local, "free"), await enrolled(local, "broken", source=broken)]
        async with serving(local, *homes):
            shown = await local.ended(await local.submit())
        part = told(shown, "broken")
        assert part.verdict == "refused"
        assert part.code == "TaskFailed"
        assert "ZeroDivisionError" in part.reason
        assert shown.state == "finished"


async def test_a_task_that_is_not_there_any_more(tmp_path):
    async with loopback(tmp_path) as local:
        home = await enrolled(local, "a")
        site = Site.from_home(home.path)
        tasks = dict(site.tasks)
        async with loopback_site(local, site):
            site.tasks.clear()  # offered in Hello, and gone when the work comes
            shown = await local.ended(await local.submit(plan(cohort={"count": 1})))
        assert tasks
        part = told(shown, "a")
        assert (part.verdict, part.code) == ("refused", "NotFound")
        assert "no task 'toy' at this site" in part.reason


@asynccontextmanager
async def loopback_site(local, site):
    running = asyncio.create_task(site.serve())
    while not len(local.fed.sessions):
        await local.fed.sessions.change()
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_toy_task_and_the_toy_model_agree(tmp_path):
    namespace: dict[str, object] = {}
    exec(TASK, namespace)  # noqa: S102  (our own text)
    assert namespace["toy"].layout().digest == toy_model().layout.digest
