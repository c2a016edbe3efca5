"""The end of a scenario's output: its checks, and the paths of kept files."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def render_checks(checks: Iterable[tuple[str, bool, bool, str]]) -> Table:
    """A table with a row for each check.

    Args:
        checks: the claim, whether it holds, whether it is certain (otherwise noise may contradict
            it), and the measurement.
    """
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(ratio=1)
    for claim, good, certain, found in checks:
        text = Text(claim, "" if good or not certain else "red")
        text.append(f"  ({found})", "dim")
        sign = ("✓", "green") if good else ("✗", "red") if certain else ("~", "yellow")
        table.add_row(Text(*sign), text)
    return table


def add_places(text: Text, picture: str | None, *folders: str | None) -> None:
    """Add a line for the picture, and for each folder of homes and logs, that was kept."""
    for label, place in (("picture", picture), *(("homes and logs", each) for each in folders)):
        if place is not None:
            text.append(f"\n{label}: {place}")
