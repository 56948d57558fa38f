"""Queries as the messages that operators see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..protos.v1 import operations_pb2
from .query_records import AskedSite, StoredQuery

MAX_LISTED = 500
MAX_SITES = 500  # of one message: with reasons of the greatest size they are a quarter of what it may hold


def query(stored: StoredQuery, asked: Sequence[AskedSite]) -> Iterator[operations_pb2.Query]:
    """A query with its answer and who was asked; very many sites come in several messages."""
    first = in_list(stored)
    first.query_json = stored.query.model_dump_json()
    first.answer_json = stored.answers.to_json() if stored.answers else ""
    yield first
    for start in range(0, len(asked), MAX_SITES):
        yield operations_pb2.Query(sites=map(_asked, asked[start : start + MAX_SITES]))


def in_list(stored: StoredQuery) -> operations_pb2.Query:
    """A query as one of many."""
    return operations_pb2.Query(
        id=stored.id,
        name=stored.query.name,
        state=stored.state,
        reason=stored.reason,
        created_unix_seconds=stored.created,
        finished_unix_seconds=stored.finished or 0.0,
    )


def _asked(asked: AskedSite) -> operations_pb2.AskedSite:
    return operations_pb2.AskedSite(site=asked.site, verdict=asked.verdict, code=asked.code, reason=asked.reason)
