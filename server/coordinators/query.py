"""One query: whom to ask, the phases of its secure sum, the answer.

What is reached is in the records alone, so that a server that was killed goes on with the same bytes. An attempt that
fails before anything was revealed is made once more, with fresh keys and whoever is there then. Once sites may have
given shares away there is no other attempt.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ...errors import ConfigError, SecureSumFailed, TooFewSites
from ...privacy.analytics.answer import Answers
from ...privacy.analytics.sessions import answers
from ...privacy.secagg.collect import SumCollection
from ...privacy.secagg.opening import add_up, open_sum
from ...privacy.secagg.signing import site_id
from ...protos.messages import Outcome, Release, Work
from ..collection import Collection
from ..federation import Federation
from ..history import Verdict
from ..query_descriptor import describe_query, fewest_sites
from ..query_records import StoredQuery
from ..questions import query_work, question
from ..sum_state import as_it_is
from ..sums import Session
from .phases import lead

MAX_ATTEMPTS = 2
GATHER_SECONDS = 5.0  # how long sites that are not connected are waited for, where those that are would do
NOT_IN_IT = "the answer was given without this site"


async def answer_query(fed: Federation, id: str) -> StoredQuery:
    """Put a query to the sites and record the answer.

    Raises:
        TooFewSites: too few sites are there, or too many have refused.
        SecureSumFailed, ConfigError: the second attempt has failed, or shares were given away and open no sum.
        RunStateError: it has ended meanwhile.
    """
    stored, work = fed.queries.find(id), query_work(id)
    if not stored.attempt:
        stored = await _begin(fed, stored, work)
    while True:
        try:
            session = await _led(fed, stored, work)
            break
        except (SecureSumFailed, ConfigError) as error:
            if isinstance(error, SecureSumFailed) and error.blamed:
                fed.sums.blame(work, error.blamed)
            if stored.attempt >= MAX_ATTEMPTS:
                raise
            fed.feed.publish("query_tried_again", run=id, detail=str(error))
            stored = await _begin(fed, stored, work)
    found = await _opened(fed, stored, work, session)
    names = session.masked
    asked = [asked.site for asked in fed.queries.asked(id)]
    verdicts = {site: Verdict.ACCEPTED if site in names else Verdict.ABSENT for site in asked}
    return fed.queries.answer(id, found, verdicts)


async def _begin(fed: Federation, stored: StoredQuery, work: Work) -> StoredQuery:
    """The next attempt, with every site that can answer; recorded."""
    return fed.queries.open_attempt(stored.id, await _gathered(fed, stored, work))


async def _gathered(fed: Federation, stored: StoredQuery, work: Work) -> list[str]:
    """The connected sites that may be asked. If they would do, the others are waited for only a moment."""
    begun, deadline = fed.clock.monotonic(), stored.query.deadline_seconds
    while True:
        wanted = _eligible(fed, stored, work)
        ready = [site for site in wanted if (live := fed.sessions.get(site)) is not None and not live.closing]
        enough = len(ready) >= fewest_sites(stored.query, len(ready))
        waited = fed.clock.monotonic() - begun
        left = min(GATHER_SECONDS, deadline) - waited if enough else deadline - waited
        possible = len(wanted) >= fewest_sites(stored.query, len(wanted))
        if not possible or left <= 0 or len(ready) == len(wanted):
            if enough:
                return ready
            raise _too_few(fed, stored, len(ready))
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await fed.sessions.change()


def _eligible(fed: Federation, stored: StoredQuery, work: Work) -> list[str]:
    """The active sites in the roster, but those that have refused, and those whose shares did not open before."""
    roster = fed.rosters.latest()
    known = roster.by_id if roster else {}
    refused = {asked.site for asked in fed.queries.asked(stored.id) if asked.verdict is Verdict.REFUSED}
    out = fed.sums.blamed(work) | refused
    return sorted(
        site for site, key in fed.registry.signing_keys().items() if site_id(key) in known and site not in out
    )


def _too_few(fed: Federation, stored: StoredQuery, number: int) -> TooFewSites:
    if fed.rosters.latest() is None:
        return TooFewSites("no roster names the sites", hint="sign one with 'foedus roster sign'")
    refused = [asked.site for asked in fed.queries.asked(stored.id) if asked.verdict is Verdict.REFUSED]
    needed = fewest_sites(stored.query, number)
    return TooFewSites(
        f"{number} connected sites that the roster names would answer, expected at least {needed}"
        + (f"; {', '.join(refused)} refused" if refused else "")
    )


async def _led(fed: Federation, stored: StoredQuery, work: Work) -> Session:
    session = fed.sums.find(work)
    if session is None or session.attempt != stored.attempt:
        session = _open(fed, stored, work)
    asks = question(stored, session)
    for asked in fed.queries.asked(stored.id):
        if asked.verdict is Verdict.ASKED:
            fed.sessions.send(asked.site, asks)
    return await lead(
        fed,
        work,
        let_go=lambda session: _let_go(fed, work, session),
        answers=lambda session: _answers(fed, stored, work, session),
    )


def _open(fed: Federation, stored: StoredQuery, work: Work) -> Session:
    roster, keys = fed.rosters.latest(), fed.registry.signing_keys()
    cohort = [asked.site for asked in fed.queries.asked(stored.id) if asked.verdict is Verdict.ASKED]
    if gone := sorted(set(cohort) - keys.keys()):
        raise ConfigError(f"{', '.join(gone)} left the federation before the query was put to them")
    assert roster is not None  # noqa: S101  (the cohort was chosen from those that it names)
    participants = tuple(site_id(keys[site]) for site in cohort)
    descriptor = describe_query(stored.query, work, stored.attempt, roster, participants)
    return fed.sums.open(work, stored.attempt, descriptor, roster)


def _let_go(fed: Federation, work: Work, session: Session) -> None:
    """Record whose words have come, and tell those that the session goes on without."""
    stays, masked = {session.names[id] for id in session.outgoing}, session.masked
    for asked in fed.queries.asked(work.run):
        if asked.verdict is Verdict.ASKED and asked.site in masked:
            fed.queries.settle(work.run, asked.site, Verdict.ACCEPTED)
        elif asked.verdict is Verdict.ASKED and asked.site not in stays:
            fed.queries.settle(work.run, asked.site, Verdict.ABSENT, reason=NOT_IN_IT)
            fed.sessions.send(asked.site, Release(work, Outcome.LATE, NOT_IN_IT))


async def _answers(fed: Federation, stored: StoredQuery, work: Work, session: Session) -> None:
    now, seconds = fed.clock.monotonic(), stored.query.deadline_seconds
    collection = Collection(len(session.descriptor.participants), 0, seconds, now + seconds)
    taking_part = {
        asked.site for asked in fed.queries.asked(work.run) if asked.verdict in (Verdict.ASKED, Verdict.ACCEPTED)
    }
    collection.ask(session.waiting & taking_part & fed.registry.active_sites(), now)
    await fed.collector.collect(work, collection)


async def _opened(fed: Federation, stored: StoredQuery, work: Work, session: Session) -> Answers:
    rows, shares = fed.sums.words(work), as_it_is(session.state)

    def opened() -> Answers:
        assert isinstance(shares, SumCollection)  # noqa: S101  (counters are summed under masks)
        opening = open_sum(shares)
        return answers(stored.query, shares.descriptor, add_up(shares.descriptor, opening, rows))

    return await asyncio.to_thread(opened)
