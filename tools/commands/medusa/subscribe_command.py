"""`medusa subscribe`: the command and its options."""

from __future__ import annotations

from typing import Final

import click

from medusa.tools.commands.command_line import also_option, home_option, say
from medusa.tools.commands.completion import names_of
from medusa.tools.rows.format_names import WRITTEN

EVERY_S: Final = 60.0
"""Seconds between two files of `--into` by default: 1,440 a day, which programs still list
quickly."""


@click.command()
@click.argument("stream_name", metavar="STREAM", shell_complete=names_of("stream"))
@click.option(
    "--from",
    "after",
    default="beginning",
    metavar="T",
    help="Tuples after this time: 2018-03-24T15:00:00Z, microseconds, or beginning (default).",
)
@click.option(
    "--until", default="end", metavar="T", help="Up to this time, then stop (default: end)."
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(WRITTEN),
    help="Of the output (default: csv).",
)
@click.option(
    "--into",
    metavar="FOLDER",
    help="Add Parquet files to FOLDER, instead of standard output, for programs that read them all"
    " the while; the next run goes on behind the last file.",
)
@click.option(
    "--every",
    default=EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="With --into: how long a tuple waits for its file at most.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N rows. With --subscriber, the epoch that it cuts comes again whole.",
)
@click.option(
    "--corrections",
    type=click.Choice(["undo", "revisions"]),
    help="Tentative tuples too, where input is missing beyond the query's bound, and how they are"
    " corrected: all anew after an UNDO, or the difference. A first column says what a row is.",
)
@click.option(
    "--subscriber", default="", metavar="NAME", help="Have the stream wait for us under this name."
)
@click.option(
    "--forget",
    is_flag=True,
    help="Write nothing: have the stream wait no longer for --subscriber NAME, which is gone.",
)
@click.option(
    "--patience", default=60.0, metavar="SECONDS", help="Bear a broken link so long (default: 60)."
)
@home_option
@also_option
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def subscribe(  # noqa: PLR0917 - click passes by keyword
    stream_name: str,
    after: str,
    until: str,
    kind: str | None,
    into: str | None,
    every: float,
    limit: int | None,
    corrections: str | None,
    subscriber: str,
    forget: bool,
    patience: float,
    home: str | None,
    also: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the tuples of STREAM, which may be a view, to standard output, epoch by epoch."""
    from pathlib import Path

    from medusa.tools.client.at_prompt import ask
    from medusa.tools.client.times import parse_time
    from medusa.tools.commands.medusa import print_stream

    if forget:
        if not subscriber:
            raise click.UsageError("--forget is for a --subscriber NAME")
        ask(home, lambda client: client.forget_subscriber(stream_name, subscriber))
        told = {"stream": stream_name, "forgotten": subscriber}
        say(as_json, told, f"{stream_name}: waits for subscriber {subscriber} no longer")
        return

    if into is not None:
        if kind is not None or as_json or limit is not None or corrections is not None:
            raise click.UsageError(
                "--into writes Parquet files of all final tuples: leave out --format, --json, "
                "--limit and --corrections"
            )
        from medusa.tools.commands.medusa import stream_folder

        stream_folder.write_stream(
            home,
            stream_name,
            Path(into),
            stream_folder.Options(
                after=parse_time(after),
                until=parse_time(until),
                every_s=every,
                subscriber=subscriber,
                patience_s=patience,
                also=also,
            ),
        )
        return

    print_stream.print_stream(
        home,
        stream_name,
        print_stream.Options(
            kind="json" if as_json else kind or "csv",
            after=parse_time(after),
            until=parse_time(until),
            subscriber=subscriber,
            patience_s=patience,
            also=also,
            corrections=corrections,
            limit=limit,
        ),
    )
