"""``foedus run``: submit, follow and steer runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..errors import ConnectionFailed, RoundFailed
from ..output import emit, json_option, moment, numbers, table
from .cli import ask_server, operator_option


@click.group()
def run() -> None:
    """Submit and follow training runs (operators).

    \b
    foedus run submit plan.toml --model initial.safetensors --watch
    foedus run ls
    foedus run show 3fa9
    foedus run fetch 3fa9 best model.safetensors
    """


@run.command()
@click.argument("plan", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--model", type=click.Path(path_type=Path, dir_okay=False), help="The initial model, instead of the plan's."
)
@click.option("--watch", "watching", is_flag=True, help="Follow the run until it ends.")
@operator_option
@json_option
def submit(plan: Path, model: Path | None, watching: bool, operator: Path, as_json: bool) -> None:
    """Check PLAN, upload its initial model and start the run."""
    from ..configuration import load
    from ..plan import Plan
    from .operator import read_plan
    from .operator import submit as send

    checked, initial = (load(Plan, plan), model) if model else read_plan(plan)
    created = ask_server(operator, lambda stub: send(stub, checked, initial))
    if not watching:
        emit(_summary(created), f"run {created.id} ({created.name}) is {created.state}", as_json=as_json)
        return
    click.echo(f"run {created.id} ({created.name})", err=True)
    _follow(operator, created.id, as_json)


@run.command("ls")
@operator_option
@json_option
def ls(operator: Path, as_json: bool) -> None:
    """Every run, oldest first."""
    from ..protos.v1 import operations_pb2

    reply = ask_server(operator, lambda stub: stub.ListRuns(operations_pb2.ListRunsRequest()))
    rows = [(r.id, r.name, r.state, r.round, moment(r.created_unix_seconds), r.reason) for r in reply.runs]
    emit(
        [_summary(r) for r in reply.runs],
        table(("ID", "NAME", "STATE", "ROUNDS", "CREATED", "REASON"), rows),
        as_json=as_json,
    )


@run.command()
@click.argument("id")
@operator_option
@json_option
def show(id: str, operator: Path, as_json: bool) -> None:
    """One run with its rounds: who took part, what was refused and why."""
    found = _show(operator, id)
    lines = [
        f"run {found.id} ({found.name}) is {found.state}" + (f": {found.reason}" if found.reason else ""),
        f"last model {found.last_sha256}",
        f"best model {found.best_sha256 or '-'}",
        "",
        table(
            ("ROUND", "STATE", "TRAINED", "TRAINING", "EVALUATION", "NOT COUNTED"),
            [
                (
                    r.number,
                    r.state,
                    sum(p.phase == 1 and p.verdict == "accepted" for p in r.participations),
                    numbers(dict(r.training_metrics)),
                    numbers(dict(r.evaluation_metrics)),
                    _not_counted(r),
                )
                for r in found.rounds
            ],
        ),
    ]
    emit(details(found), "\n".join(lines), as_json=as_json)


@run.command()
@click.argument("id")
@operator_option
@json_option
def watch(id: str, operator: Path, as_json: bool) -> None:
    """Follow a run until it ends; exit 0 if it finished. With --json, one object per line."""
    _follow(operator, id, as_json)


def _change(action: str, text: str) -> None:
    @run.command(action, help=text)
    @click.argument("id")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @operator_option
    @json_option
    def command(id: str, yes: bool, operator: Path, as_json: bool) -> None:
        from ..protos.v1 import operations_pb2

        if action == "stop" and not yes:
            click.confirm(f"run {id} will end for good, keeping its last model. Stop it?", abort=True, err=True)
        request = operations_pb2.ChangeRunRequest(run=id, action=action)
        changed = ask_server(operator, lambda stub: stub.ChangeRun(request))
        emit(_summary(changed), f"run {changed.id} is {changed.state}", as_json=as_json)


_change("pause", "Advance no further; work in progress at the sites is still accepted.")
_change("resume", "Go on where a paused run was left.")
_change("stop", "End a run for good; its last model stays.")


@run.command()
@click.argument("id")
@click.argument("which", type=click.Choice(["last", "best", "initial"]), default="last")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("model.safetensors"))
@operator_option
@json_option
def fetch(id: str, which: str, path: Path, operator: Path, as_json: bool) -> None:
    """Download a run's last, best or initial model as a safetensors file."""
    from .operator import fetch as download

    sha256 = ask_server(operator, lambda stub: download(stub, id, which, path))
    emit({"path": str(path), "sha256": sha256}, f"{path}: {which} model {sha256}", as_json=as_json)


@run.command()
@click.argument("id")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"))
@operator_option
def report(id: str, path: Path, operator: Path) -> None:
    """Write one self-contained HTML page about a run."""
    from ..files import write
    from .report import render

    write(path, render(details(_show(operator, id))))
    click.echo(str(path))


def _show(operator: Path, id: str) -> Any:
    from .operator import show as ask_for

    return ask_server(operator, lambda stub: ask_for(stub, id))


def _follow(operator: Path, id: str, as_json: bool) -> None:
    from ..protos.v1 import operations_pb2

    async def following(stub: Any) -> Any:
        last = None
        async for event in stub.WatchRun(operations_pb2.RunRequest(run=id)):
            last = event.run
            if as_json:
                click.echo(json.dumps(_event(event)))
            else:
                click.echo(_line(event))
        return last

    last = ask_server(operator, following)
    if last.state in ("failed", "stopped"):
        raise RoundFailed(f"run {last.id} {last.state}: {last.reason}")
    if last.state != "finished":
        raise ConnectionFailed(
            f"the server ended the watch while run {last.id} was {last.state}",
            hint=f"it goes on after the server's restart: 'foedus run watch {last.id}'",
        )


def _not_counted(round: Any) -> str:
    """Who of a round was not counted and why, with the score that the rule gave it beside the worst that counted."""
    counted = [p.score for p in round.participations if p.verdict == "accepted" and p.HasField("score")]
    told = []
    for p in round.participations:
        if p.verdict in ("accepted", "asked"):
            continue
        why = [": ".join(filter(None, (p.code, p.reason)))] if p.reason else []
        if p.HasField("score"):
            why.append(f"score {p.score:.3g}" + (f", counted up to {max(counted):.3g}" if counted else ""))
        told.append(f"{p.site} {p.verdict}" + (f" ({'; '.join(why)})" if why else ""))
    return "; ".join(told)


def _line(event: Any) -> str:
    parts = [
        moment(event.unix_seconds),
        event.name.replace("_", " "),
        f"round {event.round}" if event.round else "",
        event.site,
        numbers(dict(event.metrics)),
        event.detail,
    ]
    if event.name == "watch_began":
        parts.append(
            f"{event.run.state}, {event.run.round} rounds done" + (f", {event.run.reason}" if event.run.reason else "")
        )
    return "  ".join(part for part in parts if part)


def _summary(found: Any) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "state": found.state,
        "reason": found.reason,
        "round": found.round,
        "created": found.created_unix_seconds,
        "initial_sha256": found.initial_sha256,
        "last_sha256": found.last_sha256,
        "best_sha256": found.best_sha256 or None,
    }


def details(found: Any) -> dict[str, Any]:
    """A run with its rounds, as ``--json`` prints it."""
    return _summary(found) | {
        "plan": json.loads(found.plan_json),
        "rounds": [
            {
                "number": r.number,
                "state": r.state,
                "reason": r.reason,
                "model_sha256": r.model_sha256 or None,
                "started": r.started_unix_seconds,
                "finished": r.finished_unix_seconds or None,
                "training_metrics": dict(r.training_metrics),
                "evaluation_metrics": dict(r.evaluation_metrics),
                "participations": [
                    {
                        "site": p.site,
                        "phase": "train" if p.phase == 1 else "evaluate",
                        "verdict": p.verdict,
                        "code": p.code,
                        "reason": p.reason,
                        "num_examples": p.num_examples,
                        "metrics": dict(p.metrics),
                        "weight": p.weight if p.HasField("weight") else None,
                        "score": p.score if p.HasField("score") else None,
                    }
                    for p in r.participations
                ],
            }
            for r in found.rounds
        ],
    }


def _event(event: Any) -> dict[str, Any]:
    return {
        "time": event.unix_seconds,
        "event": event.name,
        "round": event.round,
        "site": event.site,
        "detail": event.detail,
        "metrics": dict(event.metrics),
        "run": _summary(event.run),
    }
