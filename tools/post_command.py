"""`medusa post`: the rows of a file, at a prompt."""

from __future__ import annotations

from typing import Final

import click

from tools.command_line import also_option, home_option, json_option, say

SHOWN_ROWS: Final = 10
"""Numbers of rows in one line for people; --json has all."""


@click.command()
@click.argument("stream_name", metavar="STREAM")
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "json", "parquet", "arrow"]),
    help="Of FILE (default: by its name; csv from standard input).",
)
@click.option(
    "--speed",
    default="max",
    metavar="max|N",
    help="N: at N times real time, by the schema's time field (default: max).",
)
@click.option("--end", is_flag=True, help="Afterwards, say that no tuple follows at all.")
@click.option(
    "--producer",
    metavar="NAME",
    help="Who posts, which the stream remembers with the rows that it has (default: the file's "
    "place on this machine).",
)
@click.option("--again", is_flag=True, help="Post all of FILE, though the stream has it already.")
@click.option(
    "--all-or-nothing",
    is_flag=True,
    help="Read FILE twice: post nothing of it unless every row is good.",
)
@click.option("--ignore-extra", is_flag=True, help="Drop columns that the schema does not have.")
@click.option(
    "--revisions",
    is_flag=True,
    help="The rows revise earlier tuples: a column revision_kind says DELETION or REPLACEMENT.",
)
@click.option(
    "--patience", default=60.0, metavar="SECONDS", help="Bear a broken link or a full peer so long."
)
@home_option
@also_option
@json_option
def post(  # noqa: PLR0917 - click passes by keyword
    stream_name: str,
    file: str,
    kind: str | None,
    speed: str,
    end: bool,
    producer: str | None,
    again: bool,
    all_or_nothing: bool,
    ignore_extra: bool,
    revisions: bool,
    patience: float,
    home: str | None,
    also: tuple[str, ...],
    as_json: bool,
) -> None:
    """Post the rows of FILE (- for standard input) to STREAM.

    The stream remembers which rows of FILE it has: the same command, run again, goes on after them,
    once a bad row is mended, or whatever ended it. --again posts a file a second time.

    With --revisions each row revises the newest tuple that has its key, the fields which the
    schema declares as key="...". For a DELETION only the key counts; a REPLACEMENT gives the whole
    tuple as it should have been. Rows that find no tuple change nothing, and are named.
    """
    from tools import post_file
    from tools.times import show_time

    done = post_file.post_file(
        home,
        stream_name,
        file,
        post_file.Options(
            kind=kind,
            speed=_speed(speed),
            end=end,
            producer=producer,
            again=again,
            all_or_nothing=all_or_nothing,
            ignore_extra=ignore_extra,
            patience_s=patience,
            also=also,
            revisions=revisions,
        ),
    )
    told = f"{done.rows:,} rows"
    if done.late:
        told += f", {done.late:,} of them late"
    if done.before:
        told += f", {done.before:,} were there already"
    if done.missed:
        shown = ", ".join(map(str, done.missed[:SHOWN_ROWS]))
        more = ", ..." if len(done.missed) > SHOWN_ROWS else ""
        told += f"; {len(done.missed):,} found nothing to revise: row {shown}{more}"
    value: dict[str, object] = {
        "stream": stream_name,
        "rows": done.rows,
        "late": done.late,
        "before": done.before,
        "boundary": done.boundary,
    }
    if revisions:
        value["missed"] = list(done.missed)
    say(as_json, value, f"posted {told}; boundary {show_time(done.boundary)}")


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
