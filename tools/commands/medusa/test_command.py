"""`medusa test`: queries under test, over recorded files."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import EXIT_FAILED, engine_option, json_option, say_json


@click.command("test")
@click.argument("folder", metavar="DIR")
@click.option("-k", "pattern", metavar="PATTERN", help="Only cases whose names have PATTERN.")
@click.option(
    "--time",
    metavar="COLUMN",
    help="The column with the rows' time, in inputs of streams that the query does not declare "
    "(default: the first timestamp).",
)
@click.option(
    "--functions",
    metavar="FILE",
    help="A file of TOML, whose section [functions] names the functions of your own that the "
    "queries may call, as medusa.toml does; their files are looked for beside it.",
)
@click.option("--update", is_flag=True, help="Write the answers to the expected files.")
@engine_option
@json_option
def run_cases(  # noqa: PLR0917 - click passes by keyword
    folder: str,
    pattern: str | None,
    time: str | None,
    functions: str | None,
    engine: str | None,
    update: bool,
    as_json: bool,
) -> None:
    """Run the queries under test in DIR, and compare their answers with those expected.

    A case is a folder with query.sql or query.xml, inputs/STREAM.csv and expected/STREAM.csv (or
    .json, .parquet). DIR is a case, or has some below it. Rows may come in any order; only the
    columns of an expected file are compared.
    """
    from medusa.tools.commands.medusa import testing
    from medusa.tools.commands.medusa.functions_file import functions_of

    allowed = functions_of(functions)
    outcomes = testing.run(
        folder, pattern, time, update=update, quiet=as_json, functions=allowed, engine=engine
    )
    failed = sum(not each.ok for each in outcomes)
    if as_json:
        say_json({"cases": [each.as_json() for each in outcomes], "failed": failed})
    else:
        click.echo(testing.summary(outcomes))
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)
