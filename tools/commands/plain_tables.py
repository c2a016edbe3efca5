"""Tables that commands print: columns under headers, no frames."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tools.monitor.tables import add_row

PIPE_COLUMNS: Final = 4096
"""Columns of a file or pipe: no line is wrapped there, so that other programs find names whole."""


PICTURE_COLUMNS: Final = 100
"""Columns of a picture in a file or pipe."""


def lines_table(*headers: str) -> Table:
    """A table with one line for each object; the first column is wrapped if necessary."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan underline"
    )
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def details_table(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """A table about one object: names of facts, and the facts."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in rows:
        add_row(table, name, words)
    return table


def screen() -> Console:
    """The terminal, or a file or pipe, which has no width, even if $COLUMNS has one: a program that
    has loaded readline passes its terminal's width to all programs that it starts."""
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    return Console(markup=False, highlight=False, width=width)


def show(table: Table) -> None:
    """Print a table without blanks at line ends."""
    _print(screen(), table)


def draw(picture: RenderableType) -> None:
    """Print what has frames: in a file or pipe, too, they have a width."""
    width = None if sys.stdout.isatty() else PICTURE_COLUMNS
    _print(Console(markup=False, highlight=False, width=width), picture)


def _print(console: Console, what: RenderableType) -> None:
    with console.capture() as captured:
        console.print(what)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
