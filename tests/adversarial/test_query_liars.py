"""A site among honest ones that answers a query wrongly, or one that it was not asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest
from foedus.client_sdk.home import SiteHome
from foedus.configuration import validate_json
from foedus.errors import AccessDenied, ProtocolError, StaleRound
from foedus.privacy.analytics.answer import Answers
from foedus.privacy.analytics.query import Query
from foedus.privacy.analytics.sessions import local
from foedus.privacy.secagg.member import Member
from foedus.privacy.secagg.messages import unframe
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.signing import Kind
from foedus.protos.messages import Phase, Refusal, SecureMessage, Work
from foedus.protos.v1 import session_pb2
from foedus.protos.wire import server_message_from_pb, site_message_to_pb
from loopback import Credentials, RawSite
from query_federation import QueryTrial, ages_of, asked, query_trial
from real_sites import serving
from secure_sums import Site

pytestmark = pytest.mark.adversarial

COUNT = asked({"kind": "count", "column": "age"}, deadline_seconds=5.0)


@dataclass
class Eve:
    """Speaks by hand; ``answer`` makes what an honest site would say."""

    raw: RawSite
    site: Site
    work: Work | None = None
    query: Query | None = None

    async def hear(self, kind: Kind) -> bytes:
        """The server's message of a kind; those before it are answered honestly."""
        while True:
            heard = await self.raw.hear()
            if isinstance(heard, session_pb2.Question):
                question = server_message_from_pb(session_pb2.ServerMessage(question=heard))
                self.work, self.query = question.work, validate_json(Query, question.query_json, "the question")
            if isinstance(heard, session_pb2.SecureMessage):
                if unframe(heard.body)[0] is kind:
                    return heard.body
                self.say(self.answer(heard.body))

    def answer(self, body: bytes) -> bytes | None:
        if unframe(body)[0] is Kind.OFFER:
            return self.site.join(body, local(self.query))
        return self.site.receive(body)

    def masked(self, *counters: int) -> tuple[bytes, bytes]:
        """A message and its words."""
        return self.site.mask(np.array(counters, np.int64)), self.site.words.tobytes()

    def say(self, body: bytes | None, words: bytes = b"") -> None:
        if body:
            self.raw.say(site_message_to_pb(SecureMessage(self.work, body, words)))


async def eve_of(trial: QueryTrial, home: SiteHome) -> Eve:
    """An enrolled site, connected by hand."""
    names = (home.authority, home.key, home.certificate)
    credentials = Credentials(trial.local.address, *(path.read_bytes() for path in names))
    raw = RawSite(home.path.name, trial.local.open(credentials), credentials)
    await raw.connect()
    federation = trial.local.fed.config.federation
    return Eve(raw, Site(Member(home.signer(), federation, home.pinned_roster_key(), SumPolicy())))


@pytest.fixture
async def trial(tmp_path):
    async with query_trial(tmp_path, 6) as made:
        async with serving(made.local, *made.homes[:5]):
            yield made


def honest(shown):
    """The answer is that of the five others."""
    assert shown.state == "answered", (shown.reason, shown.sites)
    answers = Answers.from_json(shown.answer_json)
    assert answers.answers[0].estimates[0].value == sum(len(ages_of(place)) for place in range(5))
    assert answers.num_sites == 5
    return {site.site: (site.verdict, site.code) for site in shown.sites}["site-5"]


async def refused(trial, eve, detail, *said):
    """Send a message and wait until the server has said, for itself, why it does not take it."""

    async def until_refused():
        async for happening in trial.local.fed.feed.watch():
            if happening.name == "message_refused" and detail in happening.detail:
                return

    waiting = asyncio.create_task(until_refused())
    await asyncio.sleep(0)
    eve.say(*said)
    async with asyncio.timeout(30):
        await waiting


async def test_words_that_are_not_those_signed_are_in_no_answer(trial):
    eve = await eve_of(trial, trial.homes[5])
    id = await trial.submit(COUNT)
    eve.answer(await eve.hear(Kind.DELIVER))
    message, words = eve.masked(7)
    for wrong in (b"", words[:-1], words + b"\0", bytes(8), words * 2):
        await refused(trial, eve, "not the 8 bytes that were signed", message, wrong)
    assert honest(await trial.ended(id)) == ("absent", "")


async def test_words_beside_another_message_are_not_kept(trial):
    eve = await eve_of(trial, trial.homes[5])
    id = await trial.submit(COUNT)
    eve.say(eve.answer(await eve.hear(Kind.OFFER)), b"x" * (1 << 20))
    eve.answer(await eve.hear(Kind.DELIVER))
    rows = trial.local.fed.sums.records.words(eve.work, 1)
    assert not any(words.startswith(b"x") for _, words in rows)
    eve.raw.say(site_message_to_pb(Refusal(eve.work, "SiteVeto", "changed its mind")))
    assert honest(await trial.ended(id)) == ("refused", "SiteVeto")


async def test_a_site_can_lie_about_its_own_records_and_no_others(trial):
    """Within what the query takes of a site. Nobody can see that it does."""
    eve = await eve_of(trial, trial.homes[5])
    id = await trial.submit(COUNT)
    eve.answer(await eve.hear(Kind.DELIVER))
    eve.say(*eve.masked(-1000))
    for kind in (Kind.SURVIVORS, Kind.ACK_LIST):
        eve.say(eve.answer(await eve.hear(kind)))
    found = Answers.from_json((await trial.ended(id)).answer_json)
    assert found.num_sites == 6
    assert found.answers[0].num_records == max(0, sum(len(ages_of(place)) for place in range(5)) - 1000)


async def test_what_a_site_was_not_asked_ends_its_session(trial):
    (trial.homes[0].path / "hold").touch()
    id = await trial.submit(COUNT)
    while not trial.local.fed.queries.asked(id):
        await asyncio.sleep(0)
    for message in (
        SecureMessage(Work(id, 1, Phase.QUERY), b"x"),
        SecureMessage(Work(id, 1, Phase.TRAIN), b"x"),
        Refusal(Work(id, 1, Phase.QUERY), "SiteVeto", "not for me"),
        Refusal(Work("0" * 12, 1, Phase.QUERY), "SiteVeto", "what query"),
    ):
        stranger = trial.local.site(f"stranger-{message.__class__.__name__.lower()}-{message.work.phase}")
        await stranger.connect()
        stranger.say(site_message_to_pb(message))
        with pytest.raises(StaleRound, match="was not asked"):
            await stranger.hear("question")
    (trial.homes[0].path / "hold").unlink()
    shown = await trial.ended(id)
    assert shown.state == "answered"
    assert "stranger" not in "".join(site.site for site in shown.sites)


async def test_a_site_cannot_speak_for_another(trial):
    eve = await eve_of(trial, trial.homes[5])
    id = await trial.submit(COUNT)
    await eve.hear(Kind.OFFER)
    other = Eve(
        eve.raw, Site(Member(trial.homes[0].signer(), "hearts", trial.homes[0].pinned_roster_key(), SumPolicy()))
    )
    other.work, other.query = eve.work, eve.query
    session = trial.local.fed.sums.current(eve.work)
    eve.say(other.answer(session.state.offer()))
    with pytest.raises(AccessDenied, match="expected its own"):
        await eve.raw.hear("release")
    assert honest(await trial.ended(id)) == ("absent", "")


async def test_a_message_too_long_ends_a_session(trial):
    eve = await eve_of(trial, trial.homes[5])
    id = await trial.submit(COUNT)
    await eve.hear(Kind.OFFER)
    eve.say(b"x", bytes((1 << 20) + 1))
    with pytest.raises(ProtocolError, match="masked words"):
        await eve.raw.hear("release")
    assert honest(await trial.ended(id)) == ("absent", "")
