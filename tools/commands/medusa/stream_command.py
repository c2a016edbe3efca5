"""`medusa stream`: the commands that define, alter, delete, reopen and list streams."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import home_option, json_option, say, say_json
from medusa.tools.commands.completion import names_of
from medusa.tools.commands.medusa.create_command import create_command


@click.group()
def stream() -> None:
    """Define, alter, delete, reopen, list and read streams."""


stream.add_command(create_command("streams"))


@stream.command("alter")
@click.argument("name", metavar="STREAM", shell_complete=names_of("stream"))
@click.option("--readers", metavar="NAMES", help="Readers: a,b or * (the owner always).")
@click.option(
    "--writers",
    metavar="NAMES",
    help="Participants that may post, as --readers; '' for the owner alone.",
)
@click.option(
    "--declassify",
    metavar="NAMES",
    help="Participants whose queries over it may name other readers; '' for none.",
)
@click.option("--slack", metavar="SECONDS", help="How far behind the latest a tuple may come.")
@click.option(
    "--lateness",
    metavar="SECONDS",
    help="How far behind the boundary a late tuple becomes a revision; it can only become less.",
)
@click.option("--history", metavar="SECONDS", help="How far back it can be read.")
@click.option(
    "--idle",
    metavar="explicit|clock",
    help="What moves the boundary without posts: promises alone, or the clock.",
)
@click.option(
    "--idle-timeout",
    metavar="SECONDS",
    help="How long the boundary waits for a producer that stands still.",
)
@click.option(
    "--max-ahead",
    metavar="SECONDS|none",
    help="How far beyond the clock its times may go; none: they are generated or recorded.",
)
@home_option
@json_option
def alter(  # noqa: PLR0917 - click passes by keyword
    name: str,
    readers: str | None,
    writers: str | None,
    declassify: str | None,
    slack: str | None,
    lateness: str | None,
    history: str | None,
    idle: str | None,
    idle_timeout: str | None,
    max_ahead: str | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Change the definition of STREAM while it runs; attributes that are not named stay.

    Of a stream that a query produces, only the readers and the history can be changed.
    """
    from medusa.tools.commands.medusa import alter_stream

    given = {
        "readers": readers,
        "writers": writers,
        "declassify": declassify,
        "slack": slack,
        "lateness": lateness,
        "history": history,
        "idle": idle,
        "idle_timeout": idle_timeout,
        "max_ahead": max_ahead,
    }
    alteration = alter_stream.read({key: text for key, text in given.items() if text is not None})
    alter_stream.alter(home, name, alteration)
    say(as_json, {"stream": name, **alteration.changes}, f"{name}: {alteration.in_words()}")


@stream.command("list")
@home_option
@json_option
def list_streams(home: str | None, as_json: bool) -> None:
    """List the streams of every participant that answers: owner, readers, boundary.

    `medusa list` also has the streams of late tuples and of revisions.
    """
    from medusa.tools.commands.medusa import calls, listing

    found = listing.streams(home)
    if as_json:
        say_json({"streams": found.lines, "unreachable": found.unreachable})
    elif found.lines:
        from medusa.tools.commands.medusa.listing_screen import streams_table
        from medusa.tools.commands.plain_tables import show

        show(streams_table(found.lines))
    elif not found.unreachable:
        say(False, None, "no stream is defined yet")
    calls.warn_of_silent(found.unreachable)


@stream.command("show")
@click.argument("name", metavar="STREAM", shell_complete=names_of("stream"))
@home_option
@json_option
def show_stream(name: str, home: str | None, as_json: bool) -> None:
    """Show STREAM: its schema, its readers and writers, its boundary."""
    from medusa.tools.commands.medusa import listing

    found = listing.stream(home, name)
    if as_json:
        say_json(found)
    else:
        from medusa.tools.commands.medusa.listing_screen import stream_details
        from medusa.tools.commands.plain_tables import show

        show(stream_details(found))


@stream.command("files")
@click.argument("name", metavar="STREAM", shell_complete=names_of("stream"))
@click.option(
    "--for",
    "seconds",
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the files stay.",
)
@home_option
@json_option
def files(name: str, seconds: float, home: str | None, as_json: bool) -> None:
    """Print a folder with the tuples of STREAM that this peer keeps, as Parquet files.

    The files stay as they are for a while, so DuckDB, pandas and Spark can list and read them while
    the peer goes on. The peer must run on this machine, and you must be allowed to read its home.
    """
    from medusa.tools.commands.medusa import stream_files

    found = stream_files.freeze(home, name, seconds)
    say(as_json, found, found.folder)


@stream.command("delete")
@click.argument("name", metavar="STREAM", shell_complete=names_of("stream"))
@home_option
@json_option
def delete(name: str, home: str | None, as_json: bool) -> None:
    """Delete STREAM, its late tuples and its revisions.

    Refused while the stream has readers.
    """
    from medusa.tools.client.at_prompt import ask

    ask(home, lambda client: client.delete_stream(name))
    say(as_json, {"deleted": name}, f"{name}: deleted")


@stream.command("reopen")
@click.argument("name", metavar="STREAM", shell_complete=names_of("stream"))
@home_option
@json_option
def reopen(name: str, home: str | None, as_json: bool) -> None:
    """Reopen STREAM, which has ended.

    Refused if a reader has received its end.
    """
    from medusa.tools.client.at_prompt import ask

    had_ended = ask(home, lambda client: client.reopen_stream(name))
    told = "goes on" if had_ended else "has not ended: nothing was to be done"
    say(as_json, {"reopened": name, "had_ended": had_ended}, f"{name}: {told}")
