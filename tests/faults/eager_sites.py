"""Several sites in one process that come back quickly: ``python eager_sites.py HOME...``."""

import asyncio
import sys

from foedus import logs
from foedus.client_sdk.backoff import Backoff
from foedus.client_sdk.site import Site
from foedus.protos import channel

FIRST_SECONDS, LONGEST_SECONDS, RECONNECT_MS = 0.05, 0.2, 100


def hurry() -> None:
    """Shorten every wait between two attempts."""
    Backoff.__init__.__defaults__ = (FIRST_SECONDS, LONGEST_SECONDS, *Backoff.__init__.__defaults__[2:])
    channel.CHANNEL_OPTIONS = tuple(
        (key, RECONNECT_MS if "reconnect_backoff" in key else value) for key, value in channel.CHANNEL_OPTIONS
    )


async def serve() -> None:
    await asyncio.gather(*(Site.from_home(home).serve() for home in sys.argv[1:]))


if __name__ == "__main__":
    hurry()
    logs.configure("info", format="text")
    asyncio.run(serve())
