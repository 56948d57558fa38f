"""A round is opened: once enough sites are there its cohort is drawn, and recorded before anybody is asked."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from ...errors import TooFewSites
from ..federation import Federation
from ..history import Round, Run
from ..planner import Selection, select
from .secure import eligible, unfit


async def open_round(fed: Federation, run: Run, previous: Round | None) -> Round:
    """Wait for enough sites, choose the cohort, record it; the next round, or the first.

    Raises:
        TooFewSites: they were not enough for as long as the plan has patience.
    """
    number = previous.number + 1 if previous else 1
    base = previous.model_sha256 if previous and previous.model_sha256 else run.initial_sha256
    await _returned(fed, run, previous.available if previous else frozenset())
    return await _record(
        fed,
        run,
        number,
        1,
        base_sha256=base,
        base_optimizer_sha256=previous.optimizer_sha256 if previous else None,
        base_aggregator_sha256=previous.aggregator_sha256 if previous else None,
    )


async def reopen_round(fed: Federation, run: Run, failed: Round) -> Round:
    """Another attempt at a round that failed: a new draw, from the same model.

    Raises:
        TooFewSites: as ``open_round``.
    """
    return await _record(
        fed,
        run,
        failed.number,
        failed.attempt + 1,
        base_sha256=failed.base_sha256,
        base_optimizer_sha256=failed.base_optimizer_sha256,
        base_aggregator_sha256=failed.base_aggregator_sha256,
    )


async def _returned(fed: Federation, run: Run, expected: frozenset[str]) -> None:
    """Give the sites of the round before time to come back, a deadline's worth at most.

    After the server's own restart nobody is connected, and whoever is first must not train alone.
    """
    until = fed.clock.monotonic() + run.plan.cohort.deadline_seconds
    while missing := (expected & fed.registry.active_sites()) - set(fed.available(run.plan.task)):
        fed.runs.explain(run.id, f"waiting for {', '.join(sorted(missing))} to come back")
        try:
            async with asyncio.timeout(_remaining(until, fed)):
                await fed.sessions.change()
        except TimeoutError:
            return


async def _record(
    fed: Federation,
    run: Run,
    number: int,
    attempt: int,
    *,
    base_sha256: str,
    base_optimizer_sha256: str | None,
    base_aggregator_sha256: str | None,
) -> Round:
    available, selection = await _draw(fed, run, number, attempt)
    fed.runs.explain(run.id, "")
    round = fed.rounds.open(
        run.id,
        number,
        available=available,
        cohort=selection.cohort,
        target=selection.target,
        quorum=selection.quorum,
        base_sha256=base_sha256,
        base_optimizer_sha256=base_optimizer_sha256,
        base_aggregator_sha256=base_aggregator_sha256,
        keeps_accepted=run.plan.protection == "none",
    )
    fed.feed.publish("round_opened", run=run.id, round=number, detail=", ".join(selection.cohort))
    return round


async def _draw(fed: Federation, run: Run, number: int, attempt: int) -> tuple[list[str], Selection]:
    """The sites that are there once they are enough, and the cohort drawn from them.

    Raises:
        TooFewSites: they were not for as long as the plan has patience.
    """
    plan, reference = run.plan, run.plan.aggregator.reference
    patience = fed.clock.monotonic() + (plan.cohort.patience_seconds or float("inf"))
    while True:
        available = fed.available(plan.task)
        if plan.protection != "none":
            available = eligible(fed, run, number, available)
        selection = select(plan.cohort, available, seed=plan.seed, round=number, attempt=attempt, always=reference)
        if selection is not None:
            return available, selection
        among = f" ({reference} among them)" if reference else ""
        lack = (
            f"waiting for {plan.cohort.sites_needed} sites{among} with task {plan.task!r}, {len(available)} connected"
        )
        if plan.protection != "none":
            lack += unfit(fed, run, number)
        fed.runs.explain(run.id, lack)
        try:
            async with asyncio.timeout(_remaining(patience, fed)):
                await _change(fed)
        except TimeoutError:
            raise TooFewSites(f"round {number}: {lack} after {plan.cohort.patience_seconds} s") from None


async def _change(fed: Federation) -> None:
    """Wait until a site comes or goes, or a roster names other ones."""
    async with aclosing(fed.feed.watch()) as happenings:
        async for happening in happenings:
            if happening.name in ("site_connected", "site_disconnected", "roster_published"):
                return


def _remaining(until: float, fed: Federation) -> float | None:
    return None if until == float("inf") else max(0.0, until - fed.clock.monotonic())
