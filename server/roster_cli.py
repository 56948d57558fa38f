"""``foedus roster``: the operator's own list of the sites' keys, which the server cannot change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..output import emit, json_option, table
from .cli import ask_server, operator_option

if TYPE_CHECKING:
    from .roster_signing import Draft


def file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--file``, the operator's roster key."""
    return click.option(
        "--file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="FOEDUS_ROSTER_KEY",
        help="The roster key; default: roster.key in the operator's folder.",
    )(command)


@click.group()
def roster() -> None:
    """Say which sites may take part in secure sums (operators).

    \b
    foedus roster key --file roster.key
    foedus roster sign --file roster.key
    foedus roster show
    """


@roster.command()
@file_option
@click.option("--on-server-anyway", is_flag=True, help="Allow a place inside a server's home: for trials only.")
@operator_option
@json_option
def key(file: Path | None, on_server_anyway: bool, operator: Path, as_json: bool) -> None:
    """Make the key that signs rosters, unless there is one, and print its public half.

    Whoever holds it and the server can invent sites, so it must lie where the server cannot read it.
    """
    from .roster_key import make_roster_key, read_roster_key

    path = file or _default(operator)
    made = make_roster_key(path, on_server_anyway=on_server_anyway)
    public = read_roster_key(path).public_key().public_bytes_raw().hex()
    emit({"file": str(path), "public_key": public, "made": made}, public, as_json=as_json)
    click.echo(f"{path} is {'new; keep a copy of it apart' if made else 'the key that was there'}", err=True)


@roster.command()
@file_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@operator_option
@json_option
def sign(file: Path | None, yes: bool, operator: Path, as_json: bool) -> None:
    """Show the active sites' keys, sign them as the next version, and publish it.

    Compare each new key's id by telephone with what 'foedus site status' shows at that site.
    """
    from .credentials import OperatorHome
    from .roster_key import read_roster_key
    from .roster_signing import draft, publish

    secret = read_roster_key(file or _default(operator))
    public = secret.public_key().public_bytes_raw()
    drawn = ask_server(operator, lambda stub: draft(stub, OperatorHome(operator), public))
    data = {
        "federation": drawn.federation,
        "version": drawn.version,
        "sites": [{"name": s.name, "key_id": s.key_id, "change": s.change} for s in drawn.listed],
        "without_key": list(drawn.without_key),
    }
    if not drawn.changes:
        version = drawn.version - 1
        text = f"roster {version} lists these very keys: there is nothing to sign"
        emit({**data, "version": version, "signed": False}, text, as_json=as_json)
        return
    click.echo(_described(drawn), err=True)
    if not yes:
        click.confirm(f"Have you compared every new key? Sign roster {drawn.version}?", abort=True, err=True)
    ask_server(operator, lambda stub: publish(stub, drawn, secret))
    text = f"roster {drawn.version} of {drawn.federation} is published, with {len(drawn.public_keys)} keys"
    emit({**data, "signed": True}, text, as_json=as_json)


@roster.command("show")
@file_option
@operator_option
@json_option
def show_command(file: Path | None, operator: Path, as_json: bool) -> None:
    """The roster in force: its keys, and whether your own roster key has signed it."""
    from ..errors import NotFound
    from ..privacy.certificates import read_identity
    from ..privacy.secagg.signing import site_id
    from ..protos.v1 import operations_pb2
    from .credentials import OperatorHome
    from .roster_key import public_roster_key
    from .roster_signing import claimed, show, signed_by

    found = ask_server(operator, show)
    if found is None:
        raise NotFound("no roster was published yet", hint="'foedus roster sign' makes the first one")
    sites = ask_server(operator, lambda stub: stub.ListSites(operations_pb2.ListSitesRequest())).sites
    federation = read_identity(OperatorHome(operator).certificate.read_bytes()).federation
    members = {claim.public_key: (claim.name, claim.state.value) for claim in claimed(federation, sites)}
    own = public_roster_key(file, OperatorHome(operator))
    signed = signed_by(found, own, federation) if own else None
    rows = [(*members.get(public, ("?", "unknown")), site_id(public).hex()) for public in found.public_keys]
    verdict = {
        True: "signed by your key",
        False: "NOT signed by your key",
        None: "signature not checked: no roster key",
    }
    data = {
        "federation": found.federation,
        "version": found.version,
        "sha256": found.digest.hex(),
        "signed_by_you": signed,
        "sites": [{"name": name, "state": state, "key_id": id} for name, state, id in rows],
    }
    head = f"roster {found.version} of {found.federation}, {verdict[signed]}"
    emit(data, f"{head}\n{table(('SITE', 'STATE', 'KEY'), rows)}", as_json=as_json)


def _default(operator: Path) -> Path:
    from .credentials import OperatorHome

    return OperatorHome(operator).roster_key


def _described(drawn: Draft) -> str:
    lines = [table(("SITE", "KEY", "CHANGE"), [(s.name, s.key_id, s.change or "as before") for s in drawn.listed])]
    if drawn.without_key:
        lines.append(f"without a signing key, so in no secure sum: {', '.join(drawn.without_key)}")
    if drawn.version > 1 and not drawn.in_force:
        lines.append(f"roster {drawn.version - 1} is NOT signed by this key: nothing in it is taken over")
    return "\n".join(lines)
