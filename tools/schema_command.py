"""`medusa schema`: schemas, at a prompt."""

from __future__ import annotations

import click

from tools.create_command import create_command


@click.group()
def schema() -> None:
    """Define schemas."""


schema.add_command(create_command("schemas"))
