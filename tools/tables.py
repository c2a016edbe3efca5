"""Tables and cells of the monitor's screens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from overlay.errors import printable

SHORT_ID: Final = 8
"""Hex digits of a peer's or contract's id on the screen: enough to tell a federation's apart."""

PREFIX: Final = "medusa://"

STYLES: Final = {
    "running": "green",
    "alive": "green",
    "caught up": "green",
    "in force": "green",
    "starting": "yellow",
    "waiting": "yellow",
    "pending": "yellow",
    "suspect": "yellow",
    "catching up": "yellow",
    "superseded": "yellow",
    "secondary gone": "yellow",
    "lost": "bold red",
    "unreachable": "bold red",
    "dead": "bold red",
    "alone": "bold red",
    "primary gone": "bold red",
    "failing": "bold red",
    "nonsense": "bold red",
    "error": "bold red",
    "warning": "yellow",
    "expired": "yellow",
    "revoked": "yellow",
    "stopped": "dim",
    "off": "dim",
    "left": "dim",
    "info": "",
}


SECTION_LINES: Final = 2
"""The header of each table and the blank line below it."""

BAR_CELLS: Final = 8

WORD_CELLS: Final = 22
"""Columns of a word or figure: above an address, so that no stranger's word takes all the room."""


@dataclass(frozen=True)
class Section:
    """One table of a screen.

    Attributes:
        rows: how many it has. draw: makes it with that many of them.
    """

    rows: int
    draw: Callable[[int], RenderableType]


def drawn(sections: Sequence[Section], height: int | None) -> list[RenderableType]:
    """The sections in so many lines; where there is too little room, the last ones are left out."""
    rooms = share(height, [section.rows for section in sections])
    return [section.draw(room) for section, room in zip(sections, rooms, strict=False)]


def share(height: int | None, wanted: Sequence[int]) -> list[int]:
    """Rows for each table: what all need if it fits, else the shortest needs are met first.

    Args:
        height: lines, or None for any number. wanted: rows, of the more important tables first.

    Returns:
        Rows of as many of them, from the first on, as have room for one row at least.
    """
    if height is None:
        return list(wanted)
    shown = wanted[: max(1, height // (SECTION_LINES + 1))]
    left = max(0, height - SECTION_LINES * len(shown))
    given = [0] * len(shown)
    for position, index in enumerate(sorted(range(len(shown)), key=lambda index: shown[index])):
        given[index] = min(shown[index], left // (len(shown) - position))
        left -= given[index]
    return given


def titled(title: str, hidden: int = 0, ratio: int | None = 1) -> Table:
    """A table whose first column's header is its title, and how many of its rows are hidden.

    Args:
        ratio: the first column's share of spare room; None: as wide as its content.
    """
    table = Table(
        box=None,
        pad_edge=False,
        expand=True,
        header_style="bold cyan underline",
        padding=(0, 2, 0, 0),
    )
    names(table, f"{title} +{hidden}" if hidden > 0 else title, ratio)
    return table


def names(table: Table, header: str, ratio: int | None = 1) -> None:
    """Adds a column that is cut where there is no room for it."""
    table.add_column(header, ratio=ratio, no_wrap=True, overflow="ellipsis")


def figures(table: Table, *headers: str) -> None:
    """Adds columns of numbers."""
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True, max_width=WORD_CELLS)


def words(table: Table, *headers: str) -> None:
    """Adds columns of short words."""
    for header in headers:
        table.add_column(header, no_wrap=True, max_width=WORD_CELLS)


def add_row(table: Table, *cells: str | Text) -> None:
    """Adds a row. Its words may be a stranger's: none is read as markup, nor steers a terminal."""
    table.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells))


def spaced(table: Table) -> RenderableType:
    """With a blank line below."""
    return Padding(table, (0, 1, 1, 1))


def styled(word: str) -> Text:
    """A state in its colour."""
    return Text(word, STYLES.get(word, ""))


def bar(used: float, whole: float, text: str) -> Text:
    """How much of a capacity is in use, and the same in words."""
    share_used = min(1.0, max(0.0, used / whole)) if whole > 0 else 0.0
    cells = round(share_used * BAR_CELLS)
    colour = "green" if share_used < 0.6 else "yellow" if share_used < 0.85 else "red"
    drawn_bar = Text("█" * cells, colour)
    drawn_bar.append("·" * (BAR_CELLS - cells), "dim")
    drawn_bar.append(f" {text}")
    return drawn_bar


def money(micros: int) -> str:
    """An amount or price in whole money: 0.000125, 3.5, 1,204.75."""
    value = micros / 1e6
    decimals = 6 if abs(value) < 1 else 4 if abs(value) < 100 else 2
    text = f"{value:,.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text in {"", "-0"} else text


def short(name: str) -> str:
    """An object name without the scheme that all share."""
    return name.removeprefix(PREFIX)


def number(value: float) -> str:
    """At most five characters: 0, 7.3, 941, 52k, 1.4M."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    for limit, divisor, unit in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if value < limit:
            scaled = value / divisor
            return f"{scaled:.1f}{unit}" if divisor > 1 and scaled < 10 else f"{scaled:.0f}{unit}"
    return f"{value / 1e12:.0f}T"


def size(value: int) -> str:
    """Bytes."""
    if not value:
        return "0"
    for limit, unit in ((2**20, "K"), (2**30, "M"), (2**40, "G")):
        if value < limit:
            return f"{-(-value * 1024 // limit)}{unit}"
    return f"{value / 2**40:.1f}T"
