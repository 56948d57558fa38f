"""The ``foedus`` command: nouns, then verbs; each noun is imported only when it is used."""

from __future__ import annotations

import importlib
import sys

import click

from . import __version__
from .errors import EXIT_BUG, FoedusError

NOUNS = {
    "server": ("foedus.server.cli:server", "Run the aggregation server and admit sites."),
    "site": ("foedus.client_sdk.cli:site", "Join a federation and take part in its runs."),
    "roster": ("foedus.server.roster_cli:roster", "Say which sites may take part in secure sums (operators)."),
    "task": ("foedus.client_sdk.task_cli:task", "Try a task: its initial model, its code's digest."),
    "run": ("foedus.server.run_cli:run", "Submit and follow training runs (operators)."),
    "analytics": ("foedus.server.analytics_cli:analytics", "Ask about the records of all sites (operators)."),
    "demo": ("foedus.examples.cli:demo", "Watch a whole federation at work on this machine."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, and listed without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NOUNS:
            return None
        module, _, name = NOUNS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(noun, text) for noun, (_, text) in NOUNS.items()])


@click.group(cls=LazyGroup, epilog="Run 'foedus COMMAND --help' for more.")
@click.version_option(__version__, prog_name="foedus")
def root() -> None:
    """Train one model together with sites that must not share their data.

    \b
    foedus demo heart                     four hospitals, one model, on this machine
    foedus server init HOME ...           start a federation
    foedus site join INVITATION ...       enter one
    foedus run submit PLAN.toml ...       train
    """


def main() -> None:
    """Run the command line; every deliberate error becomes one sentence and its exit status."""
    try:
        root.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except FoedusError as error:
        _fail(error)
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  (the last resort of a command)
        from .bugs import write_bug_report

        click.echo(f"foedus: a bug: {type(error).__name__}: {error}", err=True)
        click.echo(f"the details are in {write_bug_report(error)}; please report them", err=True)
        sys.exit(EXIT_BUG)


def _fail(error: FoedusError) -> None:
    if "--json" in sys.argv:
        import json

        fault = {"code": error.code, "message": str(error), "hint": error.hint}
        click.echo(json.dumps({"schema": 1, "status": "error", "error": fault}))
    click.echo(f"foedus: {error}", err=True)
    if error.hint:
        click.echo(f"        {error.hint}", err=True)
    sys.exit(error.exit_status)
