"""`medusa schema|stream|query create`: defines the objects of an XML document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from medusa.tools.commands.command_line import home_option, json_option, say

if TYPE_CHECKING:
    from medusa.engine.objects.availability import AvailabilityRequest


def create(
    file: str, home: str | None, as_json: bool, availability: AvailabilityRequest | None = None
) -> None:
    """Define everything in FILE.xml, and print the names and the readers of the streams.

    Args:
        availability: overrides the attributes of its queries.
    """
    from medusa.tools.commands.medusa import calls

    print_created(*calls.create(home, file, availability), as_json=as_json)


def print_created(names: Sequence[str], readers: Mapping[str, str], *, as_json: bool) -> None:
    """Print the names of the new objects, and the readers of new streams."""
    once = dict.fromkeys(names)  # a query of one stream may have the stream's name
    lines = [f"{name}: read by {readers[name]}" if name in readers else name for name in once]
    say(as_json, {"created": list(names), "readers": readers}, "\n".join(lines))


def create_command(what: str) -> click.Command:
    """The command `create FILE.xml`, with a help text about schemas or about streams."""

    @click.command("create", help=f"Define the {what} in FILE.xml (- for standard input).")
    @click.argument("file", metavar="FILE.xml")
    @home_option
    @json_option
    def command(file: str, home: str | None, as_json: bool) -> None:
        create(file, home, as_json)

    return command
