"""``foedus analytics``: ask about the records of all sites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..output import emit, json_option, moment, table
from .cli import ask_server, operator_option

DIGITS = 8


@click.group()
def analytics() -> None:
    """Ask about the records of all sites, of which only the sum is seen (operators).

    \b
    foedus analytics run ages.toml
    foedus analytics ls
    foedus analytics show 3fa9
    """


@analytics.command()
@click.argument("query", type=click.Path(path_type=Path, dir_okay=False))
@operator_option
@json_option
def run(query: Path, operator: Path, as_json: bool) -> None:
    """Put QUERY to the sites and print the answer, each number with the interval that it is good for."""
    from ..configuration import load
    from ..privacy.analytics.query import Query
    from .operator import answers_of, run_query

    asked = load(Query, query)
    shown = ask_server(operator, lambda stub: run_query(stub, asked))
    answers_of(shown)
    _emit(shown, as_json)


@analytics.command("ls")
@operator_option
@json_option
def ls(operator: Path, as_json: bool) -> None:
    """The newest queries, oldest of them first."""
    from ..protos.v1 import operations_pb2

    reply = ask_server(operator, lambda stub: stub.ListQueries(operations_pb2.ListQueriesRequest()))
    rows = [(q.id, q.name, q.state, moment(q.created_unix_seconds), q.reason) for q in reply.queries]
    text = table(("ID", "NAME", "STATE", "CREATED", "REASON"), rows)
    emit([_summary(q) for q in reply.queries], text, as_json=as_json)


@analytics.command()
@click.argument("id")
@operator_option
@json_option
def show(id: str, operator: Path, as_json: bool) -> None:
    """One query: its answer, and what became of each site."""
    from .operator import show_query

    _emit(ask_server(operator, lambda stub: show_query(stub, id)), as_json)


def _emit(shown: Any, as_json: bool) -> None:
    answer = json.loads(shown.answer_json) if shown.answer_json else None
    sites = [{"site": s.site, "verdict": s.verdict, "code": s.code, "reason": s.reason} for s in shown.sites]
    data = _summary(shown) | {"query": json.loads(shown.query_json), "answer": answer, "sites": sites}
    lines = [f"query {shown.id} ({shown.name}) is {shown.state}" + (f": {shown.reason}" if shown.reason else "")]
    if answer is not None:
        lines += ["", _numbers(answer), "", _terms(answer)]
    if others := [(s.site, s.verdict, s.code, s.reason) for s in shown.sites if s.verdict != "accepted"]:
        lines += ["", table(("SITE", "VERDICT", "CODE", "REASON"), others)]
    emit(data, "\n".join(lines), as_json=as_json)


def _numbers(answer: dict[str, Any]) -> str:
    rows = [
        (
            one["label"] if one["label"].startswith(found["kind"]) else f"{found['kind']} {one['label']}",
            found["column"],
            *(_shown(one[end]) for end in ("value", "low", "high")),
            _shown(found["num_records"]),
        )
        for found in answer["answers"]
        for one in found["estimates"]
    ]
    return table(("QUESTION", "COLUMN", "VALUE", "FROM", "TO", "RECORDS"), rows)


def _terms(answer: dict[str, Any]) -> str:
    if answer["epsilon"] is None:
        return f"from {answer['num_sites']} sites, without noise; the true value lies between FROM and TO"
    cost = f"ε = {answer['epsilon']:.4g} at δ = {answer['delta']:g} for each person"
    return f"from {answer['num_sites']} sites, with noise: {cost}; within FROM and TO to about 95 %"


def _shown(value: float | None) -> str:
    return "withheld" if value is None else f"{value:.{DIGITS}g}"


def _summary(shown: Any) -> dict[str, Any]:
    return {
        "id": shown.id,
        "name": shown.name,
        "state": shown.state,
        "reason": shown.reason,
        "created": shown.created_unix_seconds,
        "finished": shown.finished_unix_seconds or None,
    }
