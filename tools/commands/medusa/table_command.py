"""`medusa table`: the rows of a table at a boundary."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import home_option
from medusa.tools.commands.completion import names_of
from medusa.tools.rows.format_names import WRITTEN

_format = click.option(
    "--format",
    "kind",
    type=click.Choice(WRITTEN),
    default="csv",
    show_default=True,
    help="Of the rows.",
)
_at = click.option(
    "--at",
    metavar="T",
    help="As the table was at this time: 2018-03-24T15:00:00Z, or microseconds (default: now).",
)


@click.group()
def table() -> None:
    """Read tables: the newest row of each key."""


@table.command("scan")
@click.argument("name", metavar="TABLE", shell_complete=names_of("stream"))
@_at
@_format
@home_option
def scan(name: str, at: str | None, kind: str, home: str | None) -> None:
    """Write all rows of TABLE."""
    from medusa.tools.commands.medusa import read_tables

    read_tables.scan(home, name, at, kind)


@table.command("get")
@click.argument("name", metavar="TABLE", shell_complete=names_of("stream"))
@click.argument("key", metavar="FIELD=VALUE...", nargs=-1, required=True)
@_at
@_format
@home_option
def get(name: str, key: tuple[str, ...], at: str | None, kind: str, home: str | None) -> None:
    """Write the rows of TABLE whose fields have these values."""
    from medusa.tools.commands.medusa import read_tables

    read_tables.get(home, name, key, at, kind)
