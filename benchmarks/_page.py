"""Tables for the pages under docs/results, where prose is written by hand and figures by a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill(page: Path, name: str, text: str) -> None:
    """Put ``text`` between the page's marks ``<!-- name -->`` and ``<!-- /name -->``.

    Raises:
        SystemExit: the page has no such marks.
    """
    before, begin, rest = page.read_text().partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise SystemExit(f"{page} has no place for a table: it needs the lines <!-- {name} --> and <!-- /{name} -->")
    page.write_text(f"{before}{begin}{text}\n{end}{after}")
