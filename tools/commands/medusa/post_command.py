"""`medusa post`: the command, its options and its messages."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from medusa.tools.commands.command_line import (
    also_option,
    fields_by_column,
    home_option,
    json_option,
    map_option,
    say,
)
from medusa.tools.commands.completion import names_of
from medusa.tools.rows.format_names import READ

if TYPE_CHECKING:
    from medusa.tools.commands.medusa.post_file import Done

SHOWN_ROWS: Final = 10
"""Numbers of rows in one line for people; --json has all."""


@click.command()
@click.argument("stream_name", metavar="STREAM", shell_complete=names_of("stream"))
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--format",
    "kind",
    type=click.Choice(READ),
    help="Of FILE, gzip or zstd around it or not (default: by its name, or what it begins with).",
)
@map_option
@click.option(
    "--speed",
    default="max",
    metavar="max|N",
    help="N: at N times real time, by the schema's time field (default: max).",
)
@click.option(
    "--end",
    is_flag=True,
    help="Afterwards, say that no tuple follows at all; without FILE only that.",
)
@click.option(
    "--producer",
    metavar="NAME",
    help="The name under which the stream remembers the rows (default: the file's place on "
    "this machine).",
)
@click.option("--again", is_flag=True, help="Post all of FILE, though the stream has it already.")
@click.option(
    "--all-or-nothing",
    is_flag=True,
    help="Read FILE twice: post nothing of it unless every row is good.",
)
@click.option(
    "--ignore-extra",
    is_flag=True,
    help="Post the rows without the columns that the schema does not have, and name those.",
)
@click.option(
    "--revisions",
    is_flag=True,
    help="The rows revise earlier tuples: a column revision_kind says DELETION or REPLACEMENT.",
)
@click.option(
    "--as-table",
    is_flag=True,
    help="STREAM is a table: post what FILE changes in it, and delete the rows that FILE has not.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Post what comes to FILE as well, for ever, also after it was rotated or truncated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show nothing while it runs.")
@click.option(
    "--patience", default=60.0, metavar="SECONDS", help="Bear a broken link or a full peer so long."
)
@home_option
@also_option
@json_option
def post(  # noqa: PLR0917 - click passes by keyword
    stream_name: str,
    file: str | None,
    kind: str | None,
    names: tuple[str, ...],
    speed: str,
    end: bool,
    producer: str | None,
    again: bool,
    all_or_nothing: bool,
    ignore_extra: bool,
    revisions: bool,
    as_table: bool,
    follow: bool,
    quiet: bool,
    patience: float,
    home: str | None,
    also: tuple[str, ...],
    as_json: bool,
) -> None:
    """Post the rows of FILE (- for standard input) to STREAM.

    The stream stores its position in FILE. After a bad row is corrected, or after any interruption,
    the same command goes on from there. --again posts a file a second time.

    Lines from a pipe are posted within a second. So are lines that are added to a file, with
    --follow.

    With --revisions each row revises the newest tuple that has its key, the fields which the schema
    declares as key="...". For a DELETION only the key counts; a REPLACEMENT gives the whole tuple
    as it should have been. Rows that find no tuple change nothing, and are named.

    The newest rows wait until no earlier one can come; the last line counts them. --end makes them
    visible. Without FILE it ends the stream, and posts nothing.
    """
    of_rows = (kind, names, speed != "max", producer, again, all_or_nothing, ignore_extra)
    if file is None and not end:
        raise click.UsageError(
            "give the FILE whose rows are posted (- for standard input), or --end alone, which "
            "ends the stream"
        )
    if file is None and any((*of_rows, revisions, as_table, follow)):
        raise click.UsageError("without FILE, --end takes no option that says how one is posted")
    if follow and (file == "-" or end or all_or_nothing or revisions or speed != "max"):
        raise click.UsageError(
            "--follow takes a FILE, and no --end, --all-or-nothing, --revisions or --speed"
        )
    if as_table and (
        file == "-"
        or end
        or producer
        or again
        or all_or_nothing
        or revisions
        or follow
        or speed != "max"
    ):
        raise click.UsageError("--as-table takes a FILE, and no option that posts it otherwise")
    from medusa.tools.commands.medusa import post_file

    options = post_file.Options(
        kind=kind,
        names=fields_by_column(names),
        speed=_speed(speed),
        end=end,
        producer=producer,
        again=again,
        all_or_nothing=all_or_nothing,
        ignore_extra=ignore_extra,
        patience_s=patience,
        also=also,
        revisions=revisions,
        follow=follow,
        quiet=quiet or as_json,
    )
    if file is None:
        ended = post_file.end_stream(home, stream_name, options)
        _print(stream_name, ended, revisions=False, as_json=as_json)
        return
    if as_table:
        from medusa.tools.commands.medusa.read_tables import post_as_table

        table = post_as_table(home, stream_name, file, options)
        counts: dict[str, object] = {"stream": stream_name, **asdict(table)}
        late = f", {table.late:,} of them late: they are not in the table" if table.late else ""
        waiting = (
            f"; {table.waiting:,} rows of the table wait for one later than all of the file, and "
            "were not compared"
            if table.waiting
            else ""
        )
        told = f"posted {table.posted:,} changes of {table.rows:,} rows{late}{waiting}"
        say(as_json, counts, told)
        return

    def report(done: post_file.Done) -> None:
        _print(stream_name, done, revisions=revisions, as_json=as_json)

    report(post_file.post_file(home, stream_name, file, options, on_interrupt=report))


def _print(stream: str, done: Done, *, revisions: bool, as_json: bool) -> None:
    """The last line of the command."""
    from medusa.tools.client.times import show_time

    told = f"{done.rows:,} rows"
    if done.late:
        told += f", {done.late:,} of them late"
    if done.inserted:
        told += f", {done.inserted:,} of them late as revisions"
    if done.before:
        told += f", {done.before:,} were there already"
    if done.under_way:
        told += f", {done.under_way:,} more under way: the same command goes on"
    if done.missed:
        shown = ", ".join(map(str, done.missed[:SHOWN_ROWS]))
        more = ", ..." if len(done.missed) > SHOWN_ROWS else ""
        told += f"; {len(done.missed):,} found nothing to revise: row {shown}{more}"
    value: dict[str, object] = {
        "stream": stream,
        "rows": done.rows,
        "late": done.late,
        "inserted": done.inserted,
        "before": done.before,
        "under_way": done.under_way,
        "waiting": done.waiting,
        "let_out_by": done.let_out_by if done.waiting != 0 else "",
        "boundary": done.boundary,
        "dropped": list(done.dropped),
        "unfilled": list(done.unfilled),
    }
    if revisions:
        value["missed"] = list(done.missed)
    say(as_json, value, f"posted {told}; boundary {show_time(done.boundary)}{_waiting(done)}")


def _waiting(done: Done) -> str:
    """How many rows wait for the boundary, and until when."""
    if done.waiting == 0:
        return ""
    if done.waiting is None:
        return f"; what is later waits: {done.let_out_by} lets it out"
    wait, them = ("row waits", "it") if done.waiting == 1 else ("rows wait", "them")
    return f"; {done.waiting:,} later {wait}: {done.let_out_by} lets {them} out"


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise click.BadParameter(
            f"{text!r} is neither `max` nor a positive number", None, None, "--speed"
        )
    return speed
