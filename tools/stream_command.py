"""`medusa stream`: streams, at a prompt."""

from __future__ import annotations

import click

from tools.create_command import create_command


@click.group()
def stream() -> None:
    """Define streams."""


stream.add_command(create_command("streams"))
