"""Events, to whoever watches: none lost between watching and looking, and no watcher can hold up the server."""

from __future__ import annotations

import asyncio

from foedus.clock import ManualClock
from foedus.server.feed import MAX_BEHIND, Feed


async def watching(feed):
    """An open watch, and the first event it will get."""
    watch = feed.watch()
    first = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    return watch, first


async def test_every_watcher_hears_everything_in_order():
    feed = Feed(ManualClock())
    feed.publish("before anybody watched")
    watches = [await watching(feed) for _ in range(2)]
    for number in range(3):
        feed.publish("counted", round=number, metrics={"loss": 0.5})
    feed.close()
    for watch, first in watches:
        heard = [await first, *[happening async for happening in watch]]
        assert [happening.round for happening in heard] == [0, 1, 2]
        assert heard[0].metrics == {"loss": 0.5}


async def test_who_falls_behind_misses_the_oldest_and_still_hears_the_end():
    feed = Feed(ManualClock())
    watch, first = await watching(feed)
    feed.publish("first")
    assert (await first).name == "first"
    for number in range(3 * MAX_BEHIND):
        feed.publish("counted", round=number)
    feed.close()
    rounds = [happening.round async for happening in watch]
    assert rounds == list(range(2 * MAX_BEHIND + 1, 3 * MAX_BEHIND))


async def test_who_leaves_costs_nothing_more():
    feed = Feed(ManualClock())
    _, first = await watching(feed)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not feed._watchers
    feed.publish("to nobody")
