"""``foedus site``: what a site's administrator types."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..clock import SystemClock
from ..errors import EXIT_FAILED, ConfigError
from ..output import emit, json_option, moment

if TYPE_CHECKING:
    from .home import SiteHome

MAX_PATH = 255

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="FOEDUS_SITE",
    default=Path("foedus-site"),
    show_default=True,
    help="The site's home folder.",
)


@click.group()
def site() -> None:
    """Join a federation and take part in its runs.

    \b
    foedus site join INVITATION --task training.py:task
    foedus site doctor
    foedus site up
    """


@site.command()
@click.argument("invitation")
@click.option("--task", "entries", multiple=True, help="A task to install and allow: FILE.py:NAME or MODULE:NAME.")
@click.option("--with", "parameters", multiple=True, help="KEY=VALUE for a task that is made by a function.")
@home_option
def join(invitation: str, entries: tuple[str, ...], parameters: tuple[str, ...], home: Path) -> None:
    """Enrol with an INVITATION (the line itself, or a file with it): make a key here, get it certified.

    The given tasks are allowed by the new policy.toml, with the code that they have now.
    """
    from ..protos.invitation import Invitation
    from .config import TaskEntry
    from .enrol import join as enrol
    from .home import SiteHome
    from .loading import load_task

    file = Path(invitation)
    invited = Invitation.decode(file.read_text() if len(invitation) < MAX_PATH and file.is_file() else invitation)
    values = dict(map(pair, parameters))
    tasks: dict[str, TaskEntry] = {}
    for entry in entries:
        absolute = _absolute(entry)
        tasks[load_task(absolute, values, home).name] = TaskEntry(entry=absolute, parameters=values)
    identity = asyncio.run(
        enrol(
            invited, SiteHome(home), clock=SystemClock(), tasks=tasks, pending=lambda key: _pending(invited.name, key)
        )
    )
    click.echo(f"{identity.name} is a member of {identity.federation}; its key and settings are in {home}")
    if identity.role == "site":
        allowed = ", ".join(tasks) or "no task yet: add one to site.toml and policy.toml"
        click.echo(f"allowed by {home / 'policy.toml'}: {allowed}")
        click.echo(_secure_sums(SiteHome(home)))
        click.echo(f"Next: foedus site up --home {home}")


@site.command()
@home_option
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), default="auto")
def up(home: Path, log_format: Any) -> None:
    """Take part until SIGTERM; what is under way is taken up again by the next start."""
    from .. import logs
    from .site import Site

    found = Site.from_home(home)
    logs.configure(found.config.log_level, format=log_format)
    found.run()


@site.command()
@home_option
@json_option
def doctor(home: Path, as_json: bool) -> None:
    """Check name, clock, TLS, disk, certificate, tasks and data, each with its mend."""
    from .doctor import examine
    from .home import SiteHome

    findings = asyncio.run(examine(SiteHome(home), SystemClock()))
    lines = [
        f"{'ok  ' if f.ok else 'FAIL'} {f.name}: {f.detail}" + (f"\n     {f.mend}" if not f.ok and f.mend else "")
        for f in findings
    ]
    data = [{"name": f.name, "ok": f.ok, "detail": f.detail, "mend": f.mend} for f in findings]
    emit(data, "\n".join(lines), as_json=as_json)
    if not all(f.ok for f in findings):
        raise SystemExit(EXIT_FAILED)


@site.command()
@click.argument("task", required=False)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("preview"))
@click.option(
    "--model", type=click.Path(path_type=Path, dir_okay=False), help="Start from this model, not a fresh one."
)
@click.option(
    "--plan", type=click.Path(path_type=Path, dir_okay=False), help="Train as this plan says; default: 1 step."
)
@click.option("--query", type=click.Path(path_type=Path, dir_okay=False), help="Count for this query, without a TASK.")
@home_option
@json_option
def preview(
    task: str | None, folder: Path, model: Path | None, plan: Path | None, query: Path | None, home: Path, as_json: bool
) -> None:
    """Train TASK here and write exactly what would leave the site to FOLDER, sending nothing.

    With --query, count this site's records instead: foedus site preview --query ages.toml [FOLDER].
    """
    if query is not None:
        from .query_preview import preview_query

        data = preview_query(home, query, Path(task) if task else folder)
        emit(data, json.dumps(data, indent=2), as_json=as_json)
        return
    if task is None:
        raise click.UsageError("name a TASK, or a --query")
    from .preview import preview as write_preview

    data = write_preview(home, task, folder, model=model, plan=plan)
    emit(data, json.dumps(data, indent=2), as_json=as_json)


@site.command()
@home_option
@json_option
def status(home: Path, as_json: bool) -> None:
    """What the running client last said of itself, how long the certificate lasts, and its keys for secure sums."""
    import time

    from ..privacy.certificates import expires
    from .home import SiteHome

    place = SiteHome(home)
    ends = expires(place.credentials().certificate_pem)
    try:
        data = json.loads(place.status.read_text())
    except FileNotFoundError:
        data = {"running": False, "connected": False, "unix_seconds": 0.0}
    data["running"] = data["running"] and time.time() - data["unix_seconds"] < 10
    data["certificate_expires"] = ends
    data["signing_key_id"], data["roster_key"] = signing = _signing(place)
    data["answers"], data["epsilon"] = _answered(place)
    lines = [
        f"running: {'yes' if data['running'] else 'no'}, last heard {moment(data['unix_seconds'])}",
        f"connected: {'yes' if data['running'] and data['connected'] else 'no'}",
        f"working on: {data.get('working_on') or 'nothing'}",
        f"updates not delivered: {data.get('waiting_updates', 0)}",
        f"last left out by the server: {data.get('last_rejected') or 'never, since it was started'}",
        f"certificate until: {moment(ends)}",
        f"questions answered: {data['answers']}, {_cost(data)}",
        f"signing key: {signing[0] or 'none'}",
        f"roster key: {signing[1] or 'none pinned, so this site takes no part in secure sums'}",
    ]
    emit(data, "\n".join(lines), as_json=as_json)


@site.command()
@home_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def leave(home: Path, yes: bool) -> None:
    """Leave: delete keys, certificate, models and updates from this home; settings and policy stay."""
    from .leave import leave as remove
    from .leave import to_remove

    found = to_remove(home)
    if not found:
        raise ConfigError(f"{home} is not a site's home")
    click.echo("\n".join(f"will be deleted: {path}" for path in found), err=True)
    if not yes:
        click.confirm("Without the key this site can only return with a new invitation. Leave?", abort=True, err=True)
    remove(home)
    click.echo("this site has left; the operator can now revoke its name")


def pair(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` as a key and a JSON value, or text where the value is no JSON."""
    key, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"--with {text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _absolute(entry: str) -> str:
    """Files are found from where the command is typed; the configuration needs them absolute."""
    source, _, attribute = entry.partition(":")
    return f"{Path(source).resolve()}:{attribute}" if source.endswith(".py") else entry


def _signing(home: SiteHome) -> tuple[str, str]:
    """The id under which the site signs and the pinned roster key, both in hex; "" for what there is not."""
    from ..privacy.secagg.signing import site_id

    signer, roster_key = home.signer(), home.pinned_roster_key()
    return site_id(signer.public_key().public_bytes_raw()).hex() if signer else "", (roster_key or b"").hex()


def _answered(home: SiteHome) -> tuple[int, float | None]:
    """How many sums of queries this site has counters in, and the ε of all together; None where no ε holds."""
    import math

    from ..privacy.analytics.sessions import DELTA
    from ..privacy.renyi import epsilon
    from .sum_store import SumStore

    if not home.sums.exists():
        return 0, 0.0
    store = SumStore.open(home.sums)
    spent = store.spent()
    store.close()
    total = epsilon(spent, DELTA)
    return len(spent), total if math.isfinite(total) else None


def _cost(status: dict[str, Any]) -> str:
    return "some exactly, so that no ε holds" if status["epsilon"] is None else f"ε = {status['epsilon']:.4g} together"


def _secure_sums(home: SiteHome) -> str:
    id, roster_key = _signing(home)
    if not roster_key:
        return "this site takes no part in secure sums: the invitation names no roster key"
    return f"in secure sums it signs as {id}; tell the operator by telephone, who compares it"


def _pending(name: str, key_sha256: str) -> None:
    click.echo(f"waiting for the operator to run: foedus server sites approve {name}", err=True)
    click.echo(f"the operator sees this key, compare it by telephone: {key_sha256}", err=True)
