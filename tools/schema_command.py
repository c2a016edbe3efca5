"""`medusa schema`: schemas, at a prompt."""

from __future__ import annotations

import click

from tools.command_line import home_option, json_option, say
from tools.create_command import create_command


@click.group()
def schema() -> None:
    """Define and delete schemas."""


schema.add_command(create_command("schemas"))


@schema.command("delete")
@click.argument("name", metavar="SCHEMA")
@home_option
@json_option
def delete(name: str, home: str | None, as_json: bool) -> None:
    """Delete SCHEMA; refused while a stream has it."""
    from tools import calls

    calls.ask(home, lambda client: client.delete_schema(name))
    say(as_json, {"deleted": name}, f"{name}: deleted")
