"""A scenario's output for people: its tables, its checks, and the paths of kept files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

R = TypeVar("R")


class Check(Struct, frozen=True):
    """A claim, whether it holds, and the measurement."""

    claim: str
    good: bool
    found: str

    @property
    def certain(self) -> bool:
        """Whether the claim must hold in every run; if not, noise may contradict it."""
        return True


@dataclass(frozen=True)
class Column(Generic[R]):
    """A column of a table. words: its cells are words, not numbers."""

    heading: str
    cell: Callable[[R], RenderableType]
    words: bool = False


def table_of(
    rows: Iterable[R], columns: Sequence[Column[R]], *, gap: int = 2, title: str | None = None
) -> Table:
    """A table with a row for each of these values."""
    words = [column.heading for column in columns if column.words]
    table = new_table([column.heading for column in columns], words, gap=gap, title=title)
    for row in rows:
        table.add_row(*(column.cell(row) for column in columns))
    return table


def new_table(
    headings: Iterable[str], words: Collection[str] = (), *, gap: int = 2, title: str | None = None
) -> Table:
    """An empty table.

    Args:
        words: the headings of columns of words; the others are of numbers.
        gap: spaces between two columns.
    """
    table = Table(
        title=title,
        title_style="bold",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, gap - 1),
    )
    for heading in headings:
        if heading in words:
            table.add_column(heading)
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def render_checks(checks: Iterable[Check]) -> Table:
    """A table with a row for each check."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(ratio=1)
    for check in checks:
        certain = check.certain
        text = Text(check.claim, "" if check.good or not certain else "red")
        text.append(f"  ({check.found})", "dim")
        sign = ("✓", "green") if check.good else ("✗", "red") if certain else ("~", "yellow")
        table.add_row(Text(*sign), text)
    return table


def add_places(text: Text, picture: str | None, *folders: str | None) -> None:
    """Add a line for the picture, and for each folder of homes and logs, that was kept."""
    for label, place in (("picture", picture), *(("homes and logs", each) for each in folders)):
        if place is not None:
            text.append(f"\n{label}: {place}")
