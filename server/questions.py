"""What a site is asked about its records, rebuilt from the records of queries whenever it has to be said (again)."""

from __future__ import annotations

from collections.abc import Iterator

from ..protos.messages import Outcome, Phase, Question, Release, Work
from .federation import Federation
from .query_records import StoredQuery
from .sums import Session

RECENT_QUERIES = 20


def query_work(id: str) -> Work:
    """A query as a piece of work: a run of one round."""
    return Work(id, 1, Phase.QUERY)


def question(stored: StoredQuery, session: Session) -> Question:
    """The same words for every site that an attempt asks."""
    asked = len(session.descriptor.participants)
    return Question(query_work(stored.id), stored.query.model_dump_json(), asked)


def outstanding_questions(fed: Federation, site: str) -> Iterator[Question]:
    """All that a site was asked about its records and has not answered. What was not said yet, will be."""
    for stored in fed.queries.unanswered(site):
        session = fed.sums.find(query_work(stored.id))
        if session is not None and session.attempt == stored.attempt:
            yield question(stored, session)


def settled_questions(fed: Federation, site: str) -> Iterator[Release]:
    """What a site that comes back need not keep any longer: it may have missed that it was told so."""
    for stored in fed.queries.recent(RECENT_QUERIES):
        if stored.state.terminal and fed.queries.asked_site(stored.id, site) is not None:
            yield Release(query_work(stored.id), Outcome.COUNTED)
