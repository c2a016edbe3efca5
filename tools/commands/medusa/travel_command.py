"""`medusa view` and `medusa query copy`: the commands that use the history of streams."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import home_option, json_option, say
from medusa.tools.commands.completion import names_of
from medusa.tools.commands.medusa.create_command import print_created


@click.group()
def view() -> None:
    """Give parts of a stream's history names of their own."""


@view.command("create")
@click.argument("name")
@click.option(
    "--of",
    "stream",
    metavar="STREAM",
    required=True,
    help="What it shows a part of.",
    shell_complete=names_of("stream"),
)
@click.option("--last", type=int, metavar="N", help="The N most recent tuples.")
@click.option("--last-seconds", type=float, metavar="S", help="The last S seconds of its time.")
@click.option(
    "--range",
    "range_",
    metavar="T0..T1",
    help="The tuples after T0 and up to T1: dates, microseconds, or beginning.",
)
@click.option("--frozen", is_flag=True, help="Show for ever what it shows now.")
@home_option
@json_option
def create_view(  # noqa: PLR0917 - click passes by keyword
    name: str,
    stream: str,
    last: int | None,
    last_seconds: float | None,
    range_: str | None,
    frozen: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Keep a part of STREAM as NAME, which can be subscribed to, and read by queries, like any
    other stream.

    The view moves with the stream and gets its later tuples; with --frozen, or --range, it ends.
    """
    import msgspec

    from medusa.engine.objects.view import View
    from medusa.tools.commands.medusa import travel

    if sum(each is not None for each in (last, last_seconds, range_)) != 1:
        raise click.UsageError("say one of --last, --last-seconds and --range")
    fixed = frozen or range_ is not None
    asked = View(name, stream, travel.shown(last, last_seconds, range_), fixed)
    made, readers = travel.create_view(home, asked)
    value = {**msgspec.to_builtins(made), "readers": readers}
    told = f"{name}: read by {readers[name]}; {travel.view_in_words(made)}"
    say(as_json, value, told)


@view.command("delete")
@click.argument("name", shell_complete=names_of("stream"))
@home_option
@json_option
def delete_view(name: str, home: str | None, as_json: bool) -> None:
    """Delete view NAME and its copy of the tuples."""
    from medusa.tools.commands.medusa import travel

    travel.delete_view(home, name)
    say(as_json, {"deleted": name}, f"{name}: deleted")


@click.command("copy")
@click.argument("query", shell_complete=names_of("query"))
@click.argument("new")
@click.option(
    "--from",
    "after",
    required=True,
    metavar="T",
    help="Read the inputs after this time: 2018-03-24T15:00:00Z, microseconds, or beginning.",
)
@click.option(
    "--until", default="end", metavar="T", help="Up to this time, and end there (default: go on)."
)
@home_option
@json_option
def copy_query(  # noqa: PLR0917 - click passes by keyword
    query: str, new: str, after: str, until: str, home: str | None, as_json: bool
) -> None:
    """Run a copy of QUERY over the history of its inputs, as NEW.

    The original goes on beside it; the copy's streams are called after it.
    """
    from medusa.tools.commands.medusa import travel

    print_created(*travel.copy_query(home, query, new, after, until), as_json=as_json)
