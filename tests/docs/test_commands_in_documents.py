"""Every foedus command that a document, unit or Compose file shows is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from foedus import cli

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md"), *ROOT.glob("examples/**/*.md")]
CALL = re.compile(r"(?:^|[\s(/])foedus ((?:server|site|roster|run|analytics|demo)\b[^\n`|&;)<>]*)")
IN_COMPOSE = re.compile(r"compose .*run --rm (?:-T )?\S+ ((?:server|site|run)\b[^\n`|&;)<>]*)")


def shown_commands() -> Iterator[tuple[str, str, bool]]:
    """Where, what, and whether it is a whole command (in a block) rather than a mention."""
    for path in DOCUMENTS:
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        blocks = re.findall(r"^```(?:sh|bash|console|shell)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for block in blocks:
            for line in block.replace("\\\n", " ").splitlines():
                line = re.sub(r"\s#.*", "", line)
                for call in [*CALL.findall(line), *IN_COMPOSE.findall(line)]:
                    yield name, call, True
        for span in re.findall(r"`(foedus [^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.M)):
            for call in CALL.findall(span):
                yield name, call, False
    for path in ROOT.glob("deploy/*.service"):
        for call in re.findall(r"^ExecStart=\S+/foedus (.*)$", path.read_text(), re.MULTILINE):
            yield path.name, call, True
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    for service in services.values():
        yield "compose.yaml", shlex.join(service["command"]), True


SHOWN = sorted(set(shown_commands()))


def test_commands_are_found() -> None:
    sources = {where for where, _, _ in SHOWN}
    assert {"compose.yaml", "foedus-server.service", "foedus-site.service", "deploy/README.md"} <= sources


@pytest.mark.parametrize(("where", "command", "whole"), SHOWN, ids=[f"{s[0]}: {s[1]}" for s in SHOWN])
def test_the_command_line_takes_it(where: str, command: str, whole: bool) -> None:
    words = shlex.split(command.rstrip(" .,:"))
    group: click.Command = cli.root
    context = click.Context(group, info_name="foedus")
    while isinstance(group, click.Group) and words and not words[0].startswith("-"):
        found = group.get_command(context, words[0])
        assert found is not None, f"{where}: '{context.command_path} {words[0]}' does not exist"
        context = click.Context(found, info_name=words.pop(0), parent=context)
        group = found
    if "--help" in words or (isinstance(group, click.Group) and not words and not whole):
        return
    try:
        given, rest, _ = group.make_parser(context).parse_args(words)
    except click.UsageError as error:
        if whole or not isinstance(error, click.MissingParameter):
            pytest.fail(f"{where}: foedus {command}: {error.format_message()}")
        return
    assert rest == [], f"{where}: foedus {command}: too many arguments"
    if whole:
        missing = [p.name for p in group.params if p.required and given.get(p.name or "") in (None, ())]
        assert missing == [], f"{where}: foedus {command}: lacks {missing}"
