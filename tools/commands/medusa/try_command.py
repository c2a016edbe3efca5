"""`medusa try`: a query over recorded files."""

from __future__ import annotations

from pathlib import Path

import click

from medusa.tools.commands.command_line import (
    engine_option,
    fields_by_column,
    home_option,
    json_option,
    map_option,
    say_json,
    warn,
)
from medusa.tools.rows.format_names import WRITTEN, endings


@click.command("try")
@click.argument("query", metavar="QUERY")
@click.option(
    "--stream",
    "streams",
    metavar="NAME=FILE",
    multiple=True,
    help=f"The recorded rows ({endings(WRITTEN)}) of a stream that the query reads. May be "
    "repeated.",
)
@click.option(
    "--table",
    "tables",
    metavar="NAME=COLUMN[,COLUMN...]",
    multiple=True,
    help="A stream that the query reads as a table and does not declare, and the columns of its "
    "key. May be repeated.",
)
@click.option(
    "--time",
    metavar="COLUMN",
    help="The column with the rows' time, in files of streams that the query does not declare "
    "(default: the first timestamp).",
)
@click.option(
    "--at-speed",
    "speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Post the rows at N times the speed at which they were recorded (default: at once).",
)
@map_option
@click.option("--out", metavar="DIR", help="Write the answers to DIR, as Parquet files.")
@click.option(
    "--functions",
    metavar="FILE",
    help="A file of TOML, whose section [functions] names the functions of your own that the query "
    "may call, as medusa.toml does; their files are looked for beside it.",
)
@click.option("--explain", is_flag=True, help="Show the plan, too.")
@engine_option
@home_option
@json_option
def try_query(  # noqa: PLR0917 - click passes by keyword
    query: str,
    streams: tuple[str, ...],
    tables: tuple[str, ...],
    time: str | None,
    speed: float | None,
    names: tuple[str, ...],
    out: str | None,
    functions: str | None,
    engine: str | None,
    explain: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Try QUERY, a file of SQL or XML, over recorded files, and show its answers.

    A temporary peer computes it, with Spark or, without Java, in plain Python, and leaves nothing
    behind. Names without a participant belong to the participant of the home, or to `you` if there
    is no home. Of a script that begins with EXPLAIN the plan alone is shown.
    """
    from medusa.tools.commands.command_line import read_text
    from medusa.tools.commands.medusa import trying
    from medusa.tools.commands.medusa.functions_file import functions_of

    files = trying.files_of(streams)
    allowed = functions_of(functions)
    text = read_text(query)
    keys, mapped = trying.keys_of(tables), fields_by_column(names)
    tried = trying.trial(query, text, files, time, home, keys=keys, names=mapped)
    for remark in tried.document.remarks:
        warn(remark)
    if explain or tried.document.explain:
        trying.show_plans(tried, as_json)
    if tried.document.explain:
        return
    folder = None if out is None else Path(out)
    found = trying.run(tried, speed, folder, quiet=as_json, functions=allowed, engine=engine)
    if as_json:
        say_json(found.as_json())
    for remark in found.remarks:
        warn(remark)
    for stream, rows in found.late.items():
        warn(
            f"{stream}: {rows:,} rows came too late: sort the file by its time, or declare the "
            "stream with a slack"
        )
