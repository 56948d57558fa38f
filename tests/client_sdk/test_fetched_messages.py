"""Messages of secure sums that are too long for a session are fetched, if they can be of one that was joined."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from foedus.client_sdk.home import SiteHome
from foedus.client_sdk.sum_store import SumStore
from foedus.client_sdk.sums import Sums
from foedus.privacy.secagg.collect import Phase as SumPhase
from foedus.privacy.secagg.descriptor import SessionDescriptor
from foedus.privacy.secagg.messages import Fetch, frame
from foedus.privacy.secagg.sharing_messages import max_session_message_bytes
from foedus.privacy.secagg.signing import Kind
from foedus.protos.messages import Phase, SecureMessage, Work
from secure_sums import federation
from shared_sums import share_server, shared

DIGEST = hashlib.sha256(b"boxes").digest()
TEN = federation(10)


async def test_only_what_a_session_that_was_joined_can_say_is_fetched(tmp_path: Path) -> None:
    run = share_server(TEN, shared(TEN))
    run.to(SumPhase.DEALS)
    state, home = run.sites[TEN.ids[0]].state, SiteHome(tmp_path)
    most, asked, done = max_session_message_bytes(run.described), [], asyncio.Event()
    store = SumStore.open(home.sums)
    store.keep(state, None)

    async def fetch(sha256: str, num_bytes: int) -> bytes:
        asked.append((sha256, num_bytes))
        done.set()
        return b"no message at all"

    def kept(_session: SessionDescriptor) -> npt.NDArray[np.float32]:
        raise AssertionError("nothing is shared anew")

    sums = Sums(home, store, lambda _: None, lambda _: None, kept, fetch)
    running = asyncio.create_task(sums.run())
    work, other = Work(run.described.run, 3, Phase.TRAIN), Work("another", 3, Phase.TRAIN)
    for about, sid, num_bytes in (
        (work, run.described.sid, most + 1),
        (work, bytes(32), 100),
        (other, run.described.sid, 100),
        (work, run.described.sid, most),
    ):
        await sums.hear(SecureMessage(about, frame(Kind.FETCH, sid, Fetch(DIGEST, num_bytes).to_bytes())))
    await sums.hear(SecureMessage(work, frame(Kind.FETCH, run.described.sid, b"cut short")))
    async with asyncio.timeout(30):
        await done.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asked == [(DIGEST.hex(), most)]
    store.close()


async def test_a_bug_in_one_message_leaves_the_site_hearing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = share_server(TEN, shared(TEN))
    run.to(SumPhase.DEALS)
    home, asked, again = SiteHome(tmp_path), [], asyncio.Event()
    store = SumStore.open(home.sums)
    store.keep(run.sites[TEN.ids[0]].state, None)

    async def fetch(sha256: str, num_bytes: int) -> bytes:
        asked.append((sha256, num_bytes))
        if len(asked) == 1:
            raise StopAsyncIteration
        again.set()
        return b"no message at all"

    def kept(_session: SessionDescriptor) -> npt.NDArray[np.float32]:
        raise AssertionError("nothing is shared anew")

    sums = Sums(home, store, lambda _: None, lambda _: None, kept, fetch)
    running = asyncio.create_task(sums.run())
    message = frame(Kind.FETCH, run.described.sid, Fetch(DIGEST, 100).to_bytes())
    for _ in range(2):
        await sums.hear(SecureMessage(Work(run.described.run, 3, Phase.TRAIN), message))
    async with asyncio.timeout(30):
        await again.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["message_failed"]
    store.close()


def test_what_is_to_be_fetched_is_read_as_it_was_written() -> None:
    wanted = Fetch(DIGEST, 5 << 20)
    assert Fetch.from_bytes(wanted.to_bytes()) == wanted
    assert wanted.to_bytes() == DIGEST + (5 << 20).to_bytes(8, "big")
