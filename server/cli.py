"""``foedus server``: make a server, run it, admit sites."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..clock import SystemClock
from ..errors import ConfigError
from ..output import emit, json_option, moment, table

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def operator_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--operator``, the folder with an operator's credentials."""
    return click.option(
        "--operator",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="FOEDUS_OPERATOR",
        default=Path("foedus-server/operator"),
        show_default=True,
        help="The folder with the operator's credentials.",
    )(command)


home_argument = click.argument(
    "home", type=click.Path(path_type=Path, file_okay=False), envvar="FOEDUS_SERVER", default=Path("foedus-server")
)


@click.group()
def server() -> None:
    """Run the aggregation server and admit sites.

    \b
    foedus server init --federation hospitals --address fed.example.org:8443
    foedus server up
    foedus server invite st-anna --approved
    foedus server sites ls
    """


@server.command()
@home_argument
@click.option("--federation", required=True, help="The federation's name; it stands in every certificate.")
@click.option("--address", required=True, help="Where sites reach this server, HOST:PORT.")
@click.option("--listen", help="Where the server listens, if that differs; default: all interfaces, same port.")
@json_option
def init(home: Path, federation: str, address: str, listen: str | None, as_json: bool) -> None:
    """Make a server's HOME: authority, settings, first operator."""
    from .init import initialise

    made = initialise(home, federation=federation, address=address, listen=listen, clock=SystemClock())
    emit(
        {"home": str(made.folder), "operator": str(made.operator)},
        f"{federation} is ready in {made.folder}; keep {made.authority_key.name} as you keep your keys.\n"
        f"Next: foedus server up {made.folder}",
        as_json=as_json,
    )


@server.command()
@home_argument
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), default="auto")
def up(home: Path, log_format: Any) -> None:
    """Serve until SIGTERM, which drains; what is under way goes on after the next start."""
    from .. import logs
    from ..configuration import load
    from .app import serve
    from .config import ServerConfig, ServerHome

    config = load(ServerConfig, ServerHome(home).config)
    logs.configure(config.log_level, format=log_format)
    asyncio.run(serve(ServerHome(home), config, SystemClock()))


@server.command()
@operator_option
@json_option
def status(operator: Path, as_json: bool) -> None:
    """How the server fares."""
    from ..protos.v1 import operations_pb2

    reply = ask_server(operator, lambda stub: stub.Status(operations_pb2.StatusRequest()))
    data = {
        "version": reply.version,
        "federation": reply.federation,
        "draining": reply.draining,
        "sites_connected": reply.sites_connected,
        "runs_active": reply.runs_active,
        "kernel": reply.kernel,
    }
    emit(data, "\n".join(f"{key}: {value}" for key, value in data.items()), as_json=as_json)


@server.command()
@operator_option
@json_option
def drain(operator: Path, as_json: bool) -> None:
    """Ask the server to finish: no new work, runs go on after the next start."""
    from ..protos.v1 import operations_pb2

    ask_server(operator, lambda stub: stub.Drain(operations_pb2.DrainRequest()))
    emit({}, "the server is draining", as_json=as_json)


@server.command()
@click.argument("name")
@click.option("--expires", default="24h", show_default=True, help="How long the invitation can be used: 30m, 24h, 7d.")
@click.option("--approved", is_flag=True, help="Admit the site at once, without a further 'approve'.")
@click.option("--as-operator", is_flag=True, help="Invite an operator instead of a site.")
@click.option(
    "--roster-key",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="FOEDUS_ROSTER_KEY",
    help="The roster key that the site is to pin; default: roster.key in the operator's folder, if there is one.",
)
@operator_option
@json_option
def invite(
    name: str, expires: str, approved: bool, as_operator: bool, roster_key: Path | None, operator: Path, as_json: bool
) -> None:
    """Print a one-time invitation for NAME; hand it over on a private way."""
    from ..protos.v1 import operations_pb2
    from .credentials import OperatorHome
    from .operator import invite as make
    from .roster_key import public_roster_key

    request = operations_pb2.InviteRequest(
        name=name, role="operator" if as_operator else "site", lifetime_seconds=_seconds(expires), approved=approved
    )
    public = b"" if as_operator else public_roster_key(roster_key, OperatorHome(operator))
    invitation, ends = ask_server(operator, lambda stub: make(stub, request, public))
    data = {"name": name, "invitation": invitation.encode(), "expires": ends, "roster_key": public.hex()}
    emit(data, invitation.encode(), as_json=as_json)
    command = "foedus site join INVITATION" + (" --home OPERATOR" if as_operator else " --task FILE.py:TASK")
    click.echo(f"valid once, until {moment(ends)}; {name} runs: {command}", err=True)
    if not as_operator and not public:
        click.echo(f"there is no roster key, so {name} will take part in no secure sum: foedus roster key", err=True)


@server.command("operator")
@home_argument
def reissue(home: Path) -> None:
    """Issue the first operator's certificate anew, on the server's own machine, while it is down."""
    from .init import reissue_operator

    made = reissue_operator(home, SystemClock())
    click.echo(f"the operator's credentials in {made.folder} are new")


@server.command()
@home_argument
@click.option("--noted", metavar="DIGEST", help="The digest that an earlier audit printed; it must still be there.")
@json_option
def audit(home: Path, noted: str | None, as_json: bool) -> None:
    """Check the journal in HOME entry by entry, whether the server is up or down; nothing is changed.

    Note the digest printed and give it to the next audit: an entry that was changed or removed
    since then shows.
    """
    from .config import ServerHome
    from .journal import GENESIS, verify_journal
    from .store import Store

    database = ServerHome(home).database
    if not database.is_file():
        raise ConfigError(f"there is no server's database {database}", hint="name the server's home folder")
    store = Store(database, read_only=True)
    try:
        count, head = verify_journal(store, noted or GENESIS)
    finally:
        store.close()
    emit(
        {"entries": count, "digest": head},
        f"{count} entries, each follows from the one before\n{head}",
        as_json=as_json,
    )


@server.group()
def sites() -> None:
    """See, approve, suspend and revoke sites."""


@sites.command("ls")
@operator_option
@json_option
def sites_ls(operator: Path, as_json: bool) -> None:
    """Every member: state, key to compare by telephone, certificate, what it is doing, how often it was rejected."""
    from ..protos.v1 import operations_pb2

    reply = ask_server(operator, lambda stub: stub.ListSites(operations_pb2.ListSitesRequest()))
    data = [_site(site) for site in reply.sites]
    rows = [
        (
            s.name,
            s.role,
            s.state,
            "yes" if s.connected else "no",
            s.key_sha256[:16],
            moment(s.last_seen_unix_seconds),
            moment(s.certificate_expires_unix_seconds),
            ", ".join(s.tasks),
            s.working_on,
            f"{s.rejection_rate:.2f} of {s.rounds_judged}" if s.rounds_judged else "",
        )
        for s in reply.sites
    ]
    headings = (
        "NAME",
        "ROLE",
        "STATE",
        "CONNECTED",
        "KEY",
        "LAST SEEN",
        "CERTIFICATE UNTIL",
        "TASKS",
        "WORKING ON",
        "REJECTED",
    )
    emit(data, table(headings, rows), as_json=as_json)


def _change(action: str, text: str) -> None:
    @sites.command(action, help=text)
    @click.argument("name")
    @click.option("--as-operator", is_flag=True, help="NAME is an operator, not a site.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @operator_option
    @json_option
    def command(name: str, as_operator: bool, yes: bool, operator: Path, as_json: bool) -> None:
        from ..protos.v1 import operations_pb2

        if action == "revoke" and not yes:
            click.confirm(f"{name} will be cut off at once and must be invited again. Revoke it?", abort=True, err=True)
        request = operations_pb2.ChangeSiteRequest(name=name, action=action, role="operator" if as_operator else "site")
        site = ask_server(operator, lambda stub: stub.ChangeSite(request))
        emit(_site(site), f"{site.name} is {site.state}", as_json=as_json)


_change("approve", "Let a pending or suspended site take part.")
_change("suspend", "Refuse a site until it is approved again, its live session included.")
_change("revoke", "Refuse a site for good, its live session included.")


def ask_server(operator: Path, question: Callable[[Any], Any]) -> Any:
    """Ask the server as the operator whose credentials are in a folder."""
    from .operator import ask  # grpc is imported by the commands that call a server, not by --help

    return ask(operator, question)


def _site(site: Any) -> dict[str, Any]:
    from ..privacy.secagg.signing import site_id

    return {
        "name": site.name,
        "role": site.role,
        "state": site.state,
        "connected": site.connected,
        "key_sha256": site.key_sha256,
        "origin": site.origin,
        "last_seen": site.last_seen_unix_seconds,
        "certificate_expires": site.certificate_expires_unix_seconds,
        "tasks": list(site.tasks),
        "version": site.version,
        "clock_skew_seconds": site.clock_skew_seconds,
        "working_on": site.working_on,
        "rejection_rate": site.rejection_rate,
        "rounds_judged": site.rounds_judged,
        "signing_key_id": site_id(site.signing_key).hex() if site.signing_key else "",
    }


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not found:
        raise ConfigError(f"{text!r} is not a duration", hint="write it as 30m, 24h or 7d")
    return float(found[1]) * UNITS[found[2]]
