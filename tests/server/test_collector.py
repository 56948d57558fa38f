"""Which signs count as life, and for what."""

from __future__ import annotations

import asyncio

from foedus.clock import ManualClock
from foedus.protos.messages import Phase, Work
from foedus.server.collection import Collection, State
from foedus.server.collector import Collector

FIRST, SECOND = Work("run-a", 1, Phase.TRAIN), Work("run-b", 1, Phase.TRAIN)
DEADLINE = 10.0


class Bench:
    """A collector under a clock set by hand, with one collection for each piece of work."""

    def __init__(self, *works: Work) -> None:
        self.clock = ManualClock(0.0)
        self.collector = Collector(self.clock)
        self.tasks = {work: asyncio.create_task(self._collect(work)) for work in works}

    async def _collect(self, work: Work) -> State:
        collection = Collection(target=1, quorum=1, deadline_seconds=DEADLINE)
        collection.ask(["site"], self.clock.monotonic())
        return (await self.collector.collect(work, collection)).state

    async def at(self, seconds: float) -> dict[str, State | None]:
        """What each collection has come to at a time; looked at anew, as its own timer would."""
        self.clock.advance(seconds - self.clock.seconds)
        for work in self.tasks:
            self.collector.settle("nobody", work, accepted=False)
        for _ in range(3):
            await asyncio.sleep(0)
        return {work.run: task.result() if task.done() else None for work, task in self.tasks.items()}


async def test_progress_that_does_not_grow_is_no_life() -> None:
    bench = Bench(FIRST)
    await bench.at(1.0)
    for second in range(1, 10):
        await bench.at(float(second))
        bench.collector.moved("site", 7)
    assert await bench.at(10.9) == {"run-a": None}
    assert await bench.at(11.0) == {"run-a": State.MISSED}


async def test_a_restarted_site_counts_from_nothing_again() -> None:
    bench = Bench(FIRST)
    await bench.at(1.0)
    bench.collector.moved("site", 1000)
    await bench.at(9.0)
    bench.collector.moved("site", 0)
    bench.collector.moved("site", 1)
    assert await bench.at(18.9) == {"run-a": None}


async def test_work_for_one_run_is_life_for_the_other() -> None:
    bench = Bench(FIRST, SECOND)
    for second in range(0, 60, 5):
        assert await bench.at(float(second)) == {"run-a": None, "run-b": None}
        bench.collector.moved("site", second)
    assert await bench.at(65.0) == {"run-a": State.MISSED, "run-b": State.MISSED}
