"""What comes twice or late around another attempt: it stands for nothing else, on either side."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from foedus.client_sdk.sum_store import SumStore
from foedus.client_sdk.sums import Sums
from foedus.privacy.secagg.collect import Phase as SumPhase
from foedus.privacy.secagg.signing import Kind
from foedus.protos.messages import Phase, SecureMessage, Work
from foedus.server.participation_records import ParticipationRecords
from real_sites import serving
from secure_sums import federation
from secure_trial import VALUES, secure_plan, secure_trial
from shared_sums import share_server, shared


async def test_an_update_that_comes_again_stands_for_no_acknowledgement(tmp_path, monkeypatch):
    settle = ParticipationRecords.settle

    def forgetful(self, work, site, verdict, **fields):
        """As after a crash between the record of what was masked and that of the update."""
        if site == "eve":
            fields.pop("upload", None)
        return settle(self, work, site, verdict, **fields)

    monkeypatch.setattr(ParticipationRecords, "settle", forgetful)
    async with secure_trial(tmp_path) as trial:
        await trial.enrol(*VALUES)
        await trial.enrol(1.25, names=("eve",))
        trial.sign()
        async with serving(trial.local, *trial.homes[:5]):
            eve = await trial.raw(trial.homes[5])
            run = await trial.submit(secure_plan(6))
            await eve.hear(Kind.DELIVER)
            words = eve.masked(1.25)
            signed = eve.site.sent[-1]
            assert (await eve.upload(words, signed)).accepted
            ack = await eve.hear(Kind.SURVIVORS)
            session = trial.local.fed.sums.current(Work(run, 1, Phase.TRAIN))
            await trial.until(lambda: session.waiting == {"eve"}, "all others have acknowledged")
            assert (await eve.upload(words, signed)).accepted
            eve.say(ack)
            eve.say(await eve.hear(Kind.ACK_LIST))
            await trial.is_the_mean_of(run, *VALUES, 1.25)


async def test_a_message_of_an_earlier_attempt_does_not_stand_for_the_next(tmp_path):
    """It was on its way when the next attempt was announced; the update leaves anew for that one."""
    ten = federation(10)
    earlier = share_server(ten, shared(ten))
    earlier.to(SumPhase.AGREEMENTS)
    session, state = earlier.described, earlier.sites[ten.ids[0]].state
    async with secure_trial(tmp_path) as trial:
        (home,) = await trial.enrol(1.0)
        store = SumStore.open(home.sums)
        store.keep(state, None)
        said, spoken = [], asyncio.Event()

        def say(message):
            said.append(message)
            spoken.set()

        work = Work(session.run, session.round, Phase.TRAIN)
        sums = Sums(home, store, say, lambda work: None, no_update, no_file)
        sums.announce(SimpleNamespace(work=work))
        await sums.hear(SecureMessage(work, earlier.outbox[state.site]))
        order = SimpleNamespace(work=work)
        sums.announce(order)
        running = asyncio.create_task(sums.run())
        async with asyncio.timeout(30):
            await spoken.wait()
        leaving = asyncio.create_task(sums.masked(order, no_update))
        done, _ = await asyncio.wait({leaving}, timeout=0.3)
        assert not done  # where the earlier attempt stands is nothing to this one
        for task in (running, leaving):
            task.cancel()
        await asyncio.gather(running, leaving, return_exceptions=True)
        store.close()


def no_update(session):
    raise AssertionError("nothing is masked")


async def no_file(sha256, num_bytes):
    raise AssertionError("nothing is too long for a session")
