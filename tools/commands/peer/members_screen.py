"""`medusa-peer members`: the members of a federation, as a table."""

from __future__ import annotations

import time
from typing import Final

import click
from rich.text import Text

from medusa.overlay.clock import shown
from medusa.overlay.errors import printable
from medusa.overlay.roll import MemberRow, Roll
from medusa.tools.commands import plain_tables
from medusa.tools.commands.plain_tables import lines_table
from medusa.tools.monitor.tables import add_row

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
    """Print the members, and the admission policy."""
    table = lines_table("participant", "standing", "admitted by", "since", "root", "note")
    for column in table.columns:
        column.no_wrap = column.header in {"standing", "since", "root"}
    now = time.time()
    for row in roll.members:
        add_row(
            table,
            row.participant,
            Text(row.standing, _STYLES[row.standing]),
            ", ".join(row.sponsors) or "the charter",
            shown(row.since)[:10],
            row.root,
            _note(row, now),
        )
    plain_tables.show(table)
    lines = [f"federation {roll.name}: {roll.admits} may admit (policy {roll.policy})"]
    lines += [
        f"signed by {', '.join(each.signed_by)}, and waiting for others: policy {each.policy}"
        for each in roll.changes
    ]
    click.echo("\n".join(printable(line) for line in lines))


def _note(row: MemberRow, now: float) -> str:
    said = []
    if row.until:
        until = shown(row.until)
        said.append(f"until {until if until[:10] == shown(now)[:10] else until[:10]}")
    if row.ended:
        said.append(row.ended)
    if row.revoked_peers:
        said.append(f"{len(row.revoked_peers)} of its peers left or revoked")
    return "; ".join(said)
