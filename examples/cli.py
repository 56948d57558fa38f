"""``foedus demo``: examples that run whole federations on this machine."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def demo() -> None:
    """Watch a whole federation at work on this machine.

    \b
    foedus demo heart
    """


@demo.command()
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds to train; default: as the example's plan says.")
@click.option("--attack", envvar="ATTACK", metavar="NAME", help="Let a fifth, malicious site take part, such as ipm.")
@click.option(
    "--aggregator", envvar="AGGREGATOR", metavar="NAME", help="The rule, such as multi-krum; default: as the plan says."
)
@click.option("--split", type=click.IntRange(min=0), default=0, show_default=True, help="Which training/test split.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep homes and logs in this new folder."
)
@click.option(
    "--json-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="DEMO_JSON",
    help="Also write the result here as JSON.",
)
def heart(
    rounds: int | None,
    attack: str | None,
    aggregator: str | None,
    split: int,
    keep: Path | None,
    json_file: Path | None,
) -> None:
    """Four hospitals train a model of heart disease, each in a process of its own, over mutual TLS.

    With --attack a fifth site sends what that attack says, and --aggregator names the rule that is to
    hold against it; docs/attacks.md lists the attacks. ATTACK and AGGREGATOR in the environment do the same.
    """
    try:
        from .heart.demo import run
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"this example needs the package {error.name}: install foedus with its extras, 'foedus[server,torch]'"
        ) from None
    run(rounds=rounds, split=split, keep=keep, json_file=json_file, attack=attack, aggregator=aggregator)
