"""Tables that commands print: columns under headers, no frames."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from medusa.tools.monitor.tables import add_row, as_text

PIPE_COLUMNS: Final = 4096
"""Columns of a file or pipe: no line is wrapped there, so that other programs find names whole."""


PICTURE_COLUMNS: Final = 100
"""Columns of a picture in a file or pipe."""


_GAP: Final = 2
"""Blanks between columns."""


def lines_table(*headers: str) -> Table:
    """A table with one line for each object; the first column is wrapped if necessary."""
    table = Table(
        box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold cyan underline"
    )
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


class NamesTable:
    """A table with one line for each object, whose names are whole at any width: where there is too
    little room, columns give way, and a last line says which.

    Args:
        headers: the headers of its columns; the first column has the objects' names.
        gives_way: columns that are left out, the first of them first. wraps: columns of prose,
            which is wrapped between words.
        whole: the command that shows an object with all that was left out; "": none does.
    """

    def __init__(
        self,
        *headers: str,
        gives_way: Sequence[str],
        wraps: Collection[str] = (),
        whole: str = "",
    ) -> None:
        self._headers = headers
        self._gives_way = gives_way
        self._wraps = wraps
        self._whole = whole
        self._rows: list[list[Text]] = []

    def add(self, *cells: str | Text) -> None:
        """Add the line of an object. Its cells may be untrusted text: none is read as markup, and
        control characters become `?`."""
        self._rows.append([as_text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = [self._least(number) for number in range(len(self._headers))]
        shown, left_out = list(range(len(self._headers))), []
        for header in self._gives_way:
            if _with_gaps(least[number] for number in shown) <= options.max_width:
                break
            shown.remove(self._headers.index(header))
            left_out.append(header)
        spare = max(0, options.max_width - _with_gaps(least[number] for number in shown))
        table = lines_table()
        for number in shown:
            more = min(spare, self._most(number) - least[number])
            spare -= more
            table.add_column(self._headers[number], width=least[number] + more)
        for row in self._rows:
            table.add_row(*(row[number] for number in shown))
        # A name that is wider than the terminal is wrapped by the terminal, which joins such lines
        # when it copies.
        width = max(options.max_width, _with_gaps(least[number] for number in shown))
        yield from console.render(table, options.update(width=width))
        if left_out:
            shows = f" ({self._whole})" if self._whole else ""
            yield Text(f"too narrow for: {', '.join(left_out)}{shows}", "dim")

    def _cells(self, number: int) -> Iterator[str]:
        return chain([self._headers[number]], (row[number].plain for row in self._rows))

    def _most(self, number: int) -> int:
        """Columns in which nothing is wrapped."""
        return max(cell_len(line) for cell in self._cells(number) for line in cell.split("\n"))

    def _least(self, number: int) -> int:
        """Columns in which no word is broken."""
        if self._headers[number] not in self._wraps:
            return self._most(number)
        return max(cell_len(word) for cell in self._cells(number) for word in ["", *cell.split()])


def _with_gaps(widths: Iterable[int]) -> int:
    return sum(width + _GAP for width in widths) - _GAP


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


def show(table: RenderableType) -> None:
    """Print a table without blanks at line ends."""
    _print(screen(), table)


def draw(picture: RenderableType) -> None:
    """Print a value that is drawn with frames: in a file or pipe, too, it has a width."""
    width = None if sys.stdout.isatty() else PICTURE_COLUMNS
    _print(Console(markup=False, highlight=False, width=width), picture)


def _print(console: Console, what: RenderableType) -> None:
    with console.capture() as captured:
        console.print(what, crop=False)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
