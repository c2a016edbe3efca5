"""Tables and cells of the monitor's screens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeAlias

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from medusa.overlay.errors import printable

SHORT_ID: Final = 8
"""Hex digits of a peer's or contract's id on the screen: enough to distinguish those of a
federation."""

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
    "failed": "bold red",
    "unreachable": "bold red",
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

LEAST_LINES: Final = 3
"""Least lines of a longer table: with fewer it is useless, and others get the room."""

BAR_CELLS: Final = 8

WORD_CELLS: Final = 22
"""The most columns of a word or figure: an address fits, and an untrusted text leaves room for the
other cells."""


Line: TypeAlias = Sequence["str | Text"]
"""The cells of one line; a single cell is as wide as the table."""

Item: TypeAlias = Sequence[Line]
"""The lines of an item, which are shown together: most items have one."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        ratio: the share of spare room for a column of names, which is cut if there is too little;
            None: as wide as its content.
        right: whether its cells are right-aligned, as figures are.
    """

    header: str
    ratio: int | None = None
    right: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Section:
    """One table of a screen, its most important items first.

    Attributes:
        title: the header of its first column. columns: all of them.
    """

    title: str
    columns: Sequence[Column]
    items: Sequence[Item]

    @property
    def lines(self) -> int:
        return sum(map(len, self.items))

    def matching(self, words: str) -> Section:
        """The section with only the items that have all these words, in any case."""
        wanted = words.lower().split()
        return replace(
            self, items=[item for item in self.items if all(w in _said(item) for w in wanted)]
        )

    def draw(self, room: int, top: int = 0) -> RenderableType:
        """The section with the items from number `top` on that fit into `room` lines; an item
        longer than the room is cut."""
        shown = fitting(self.items[top:], room)
        hidden = len(self.items) - len(shown)
        table = Table(
            box=None,
            pad_edge=False,
            expand=True,
            header_style="bold cyan underline",
            padding=(0, 2, 0, 0),
        )
        for place, column in enumerate(self.columns):
            more = f" +{hidden}" if hidden > 0 and place == 0 else ""
            table.add_column(
                column.header + more,
                ratio=column.ratio,
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                max_width=column.limit,
            )
        lines = list(chain.from_iterable(shown))
        for line in lines:
            if not self._is_wide(line):
                add_row(table, *line)
        wide = [line[0] if self._is_wide(line) else None for line in lines]
        return Padding(_Interleaved(table, wide), (0, 1, 1, 1))

    def _is_wide(self, line: Line) -> bool:
        return len(line) == 1 < len(self.columns)


@dataclass(frozen=True)
class _Interleaved:
    """A table of one header line and one line for each row, with texts of its full width between
    rows.

    Attributes:
        texts: for each line below the header: its text; None: the table's next row.
    """

    table: Table
    texts: Sequence[str | Text | None]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = iter(console.render_lines(self.table, options))
        yield from (*next(rows), Segment.line())
        for text in self.texts:
            if text is None:
                yield from (*next(rows), Segment.line())
            else:
                yield Text(printable(text), no_wrap=True) if isinstance(text, str) else text


def fitting(items: Sequence[Item], room: int) -> list[Item]:
    """The first items, as many as fit into `room` lines."""
    shown: list[Item] = []
    left = room
    for item in items:
        if len(item) > left:
            if not shown and room > 0:
                shown.append([*item[: room - 1], _cut(item[room - 1])])
            break
        shown.append(item)
        left -= len(item)
    return shown


def _cut(line: Line) -> Line:
    """Append an ellipsis to the last shown line of an item whose further lines have no room; a line
    of several cells stays as it is."""
    if len(line) > 1:
        return line
    (text,) = line
    return [Text.assemble(text, " \N{HORIZONTAL ELLIPSIS}", no_wrap=True, overflow="ellipsis")]


def _said(item: Item) -> str:
    return " ".join(str(cell) for line in item for cell in line).lower()


def drawn(sections: Sequence[Section], height: int | None) -> list[RenderableType]:
    """The sections in `height` lines; if there is too little room, the last ones are left out."""
    rooms = share(height, [section.lines for section in sections], LEAST_LINES)
    return [section.draw(room) for section, room in zip(sections, rooms, strict=False)]


def share(height: int | None, wanted: Sequence[int], least: int = 1) -> list[int]:
    """Divide the lines between tables: if not all fit, the shortest needs are met first.

    Args:
        height: lines, or None for any number. wanted: rows, of the more important tables first.
        least: rows for which a table is worth its header, if it has as many.

    Returns:
        Rows of the first tables, as many as have room for `least` rows each.
    """
    if height is None:
        return list(wanted)
    count, taken = 0, 0
    for rows in wanted:
        taken += SECTION_LINES + min(rows, least)
        if taken > height:
            break
        count += 1
    shown = wanted[: max(1, count)]
    left = max(0, height - SECTION_LINES * len(shown))
    given = [0] * len(shown)
    for position, index in enumerate(sorted(range(len(shown)), key=lambda index: shown[index])):
        given[index] = min(shown[index], left // (len(shown) - position))
        left -= given[index]
    return given


def titled(title: str, ratio: int | None = 1) -> Column:
    """The first column: its header is the table's title."""
    return Column(title, ratio)


def names(header: str, ratio: int | None = 1) -> Column:
    """A column that is cut if there is too little room."""
    return Column(header, ratio)


def figures(*headers: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(header, right=True, limit=WORD_CELLS) for header in headers]


def words(*headers: str) -> list[Column]:
    """Columns of short words."""
    return [Column(header, limit=WORD_CELLS) for header in headers]


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row. Its cells may be untrusted text: see `as_text`."""
    table.add_row(*map(as_text, cells))


def as_text(cell: str | Text) -> Text:
    """A cell whose text may be untrusted: none of it is read as markup, and control characters
    become `?`."""
    return Text(printable(cell)) if isinstance(cell, str) else cell


def styled(word: str) -> Text:
    """A state in its colour."""
    return Text(word, STYLES.get(word, ""))


def health_in_words(health: str) -> str:
    """A verdict of the failure detector, for people: a peer that it calls dead does not answer, and
    may live."""
    return "unreachable" if health == "dead" else health


def bar(used: float, whole: float, text: str) -> Text:
    """A bar of the used part of a capacity, with a text."""
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
    """An object name without the common scheme."""
    return name.removeprefix(PREFIX)


def number(value: float) -> str:
    """A number in at most five characters: 0, 7.3, 941, 52k, 1.4M."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    for limit, divisor, unit in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if value < limit:
            scaled = value / divisor
            return f"{scaled:.1f}{unit}" if divisor > 1 and scaled < 10 else f"{scaled:.0f}{unit}"
    return f"{value / 1e12:.0f}T"


def size(value: int) -> str:
    """A number of bytes for people."""
    if not value:
        return "0"
    for limit, unit in ((2**20, "K"), (2**30, "M"), (2**40, "G")):
        if value < limit:
            return f"{-(-value * 1024 // limit)}{unit}"
    return f"{value / 2**40:.1f}T"
