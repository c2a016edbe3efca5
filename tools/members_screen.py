"""The roll of a federation as a person reads it."""

from __future__ import annotations

from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from overlay.clock import shown
from overlay.errors import printable
from overlay.roll import MemberRow, Roll
from tools.tables import add_row

_STYLES: Final = {
    "founder": "green",
    "member": "green",
    "invited": "yellow",
    "waiting": "yellow",
    "expired": "dim",
    "left": "dim",
    "revoked": "bold red",
}


def show(roll: Roll) -> None:
    """Print the members, and who admits others."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("participant", overflow="fold")
    table.add_column("standing", no_wrap=True)
    table.add_column("admitted by", overflow="fold")
    table.add_column("since", no_wrap=True)
    table.add_column("root", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in roll.members:
        add_row(
            table,
            row.participant,
            Text(row.standing, _STYLES[row.standing]),
            ", ".join(row.sponsors) or "the charter",
            shown(row.since)[:10],
            row.root,
            _more(row),
        )
    console = Console(markup=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    lines.append(f"federation {roll.name}: {roll.admits} may admit (policy {roll.policy})")
    lines += [
        f"signed by {', '.join(each.signed_by)}, and waiting for others: policy {each.policy}"
        for each in roll.changes
    ]
    click.echo("\n".join(printable(line) for line in lines))


def _more(row: MemberRow) -> str:
    said = []
    if row.until:
        said.append(f"until {shown(row.until)[:10]}")
    if row.ended:
        said.append(row.ended)
    if row.revoked_peers:
        said.append(f"{len(row.revoked_peers)} of its peers revoked")
    return "; ".join(said)
