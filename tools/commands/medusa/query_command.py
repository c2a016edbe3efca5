"""`medusa query`: the commands that define, run, modify, copy and list queries."""

from __future__ import annotations

import click

from medusa.overlay.errors import UnavailableError
from medusa.tools.commands.command_line import home_option, json_option, read_text, say, say_json
from medusa.tools.commands.completion import names_of
from medusa.tools.commands.medusa.availability_options import availability_options, requested
from medusa.tools.commands.medusa.create_command import create
from medusa.tools.commands.medusa.travel_command import copy_query


@click.group()
def query() -> None:
    """Define, run, modify, copy, delete and list queries."""


@query.command("create")
@click.argument("file", metavar="FILE")
@availability_options
@home_option
@json_option
def create_query(  # noqa: PLR0917 - click passes by keyword
    file: str,
    ha: str | None,
    recovery: str | None,
    bound: float | None,
    checkpoint: float | None,
    secondary: str | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Define the queries, and the schemas and streams beside them, in FILE (- for standard input),
    which is SQL or XML.

    The availability options override the attributes of all queries in the file.
    """
    create(file, home, as_json, requested(ha, recovery, bound, checkpoint, secondary))


def _add_status(verb: str, status: str, help_text: str) -> None:
    @query.command(verb, help=help_text)
    @click.argument("name", shell_complete=names_of("query"))
    @home_option
    @json_option
    def change(name: str, home: str | None, as_json: bool) -> None:
        from medusa.engine.objects.query import QueryStatus
        from medusa.tools.commands.medusa import calls

        trouble = calls.set_query_status(home, name, QueryStatus(status))
        if as_json or not trouble:
            value = {"query": name, "status": status, "trouble": trouble}
            say(as_json, value, f"{name}: {status.lower()}")
        if trouble:
            raise UnavailableError(f"{name} is started and computes nothing yet: {trouble}")


_add_status("start", "RUNNING", "Start query NAME, and wait until it can be computed.")
_add_status("stop", "STOPPED", "Stop query NAME; it goes on from where it stood when started.")
_add_status("delete", "DELETED", "Delete query NAME and the streams it produces.")


@query.command("modify")
@click.argument("name", shell_complete=names_of("query"))
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--box", metavar="BOX", help="The box that is to have other parameters.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="One of its parameters, as in XML: expression.0='number > 7'. May be repeated.",
)
@click.option(
    "--at",
    metavar="T",
    help="For tuples after this time: 2018-03-24T15:00:00Z, or microseconds (default: from the "
    "earliest time on that is safe).",
)
@click.option(
    "--alone",
    is_flag=True,
    help="Though a peer that had a part in the query cannot be told: it is gone for good.",
)
@home_option
@json_option
def modify_query(  # noqa: PLR0917 - click passes by keyword
    name: str,
    file: str | None,
    box: str | None,
    settings: tuple[str, ...],
    at: str | None,
    alone: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Change parameters of boxes of query NAME while it runs, exactly from one time on.

    The changes are given by --box and --set; or by FILE (- for standard input): the edited script
    of the query, of which the boxes that change are shown, or a document of <modify> elements.
    Results up to that time stay as they are.
    """
    from medusa.tools.commands.medusa import modify_query as modifying

    if file is None and box is not None and settings:
        wish = modifying.from_prompt(box, settings, at)
    elif file is not None and box is None and not settings:
        text = read_text(file)
        if modifying.is_script(text):
            made, changes = modifying.modify_to(home, name, file, text, at, alone=alone)
            say(as_json, modifying.as_data(made, changes), modifying.in_words(made, changes))
            return
        wish = modifying.from_document(file, text, at)
    else:
        raise click.UsageError("give --box BOX and --set NAME=VALUE, or a FILE")
    done = modifying.modify(home, name, wish, alone=alone)
    say(as_json, {"query": name, "since": done.since}, modifying.in_words(done))


query.add_command(copy_query)


@query.command("explain")
@click.argument("what", metavar="NAME|FILE", shell_complete=names_of("query"))
@click.option("--plot", is_flag=True, help="Draw the tasks, each below the stream that it reads.")
@home_option
@json_option
def explain_query(what: str, plot: bool, home: str | None, as_json: bool) -> None:
    """Show the plan of query NAME, or of the queries in FILE (- for standard input): its tasks,
    what each keeps of its inputs, and which windows are folded from panes."""
    from medusa.tools.commands.medusa import explain_query as explaining

    document = explaining.is_document(what)
    found = (explaining.explain_document if document else explaining.explain_query)(home, what)
    if as_json:
        say_json(found)
        return
    from medusa.tools.commands.plain_tables import draw, show

    if plot:
        from medusa.tools.commands.medusa.plan_picture import plan_picture

        for each in found:
            draw(plan_picture(each))
        return
    for number, each in enumerate(found):
        if number > 0:
            click.echo()
        show(explaining.explanation_table(each))


@query.command("print")
@click.argument("what", metavar="NAME|FILE", shell_complete=names_of("query"))
@click.option(
    "--as",
    "language",
    type=click.Choice(["sql", "xml", "python"]),
    default="sql",
    show_default=True,
    help="The language.",
)
@home_option
def print_query(what: str, language: str, home: str | None) -> None:
    """Print query NAME, or all that FILE defines (- for standard input), as SQL, XML or Python that
    defines the same."""
    from medusa.tools.commands.medusa import print_query as printing
    from medusa.tools.commands.medusa.explain_query import is_document

    show = printing.print_document if is_document(what) else printing.print_query
    click.echo(show(home, what, printing.Language(language)), nl=False)


@query.command("list")
@home_option
@json_option
def list_queries(home: str | None, as_json: bool) -> None:
    """List the queries of every participant that answers, and their states."""
    from medusa.tools.commands.medusa import calls, listing

    found = listing.queries(home)
    if as_json:
        say_json({"queries": found.lines, "unreachable": found.unreachable})
    elif found.lines:
        from medusa.tools.commands.medusa.listing_screen import queries_table
        from medusa.tools.commands.plain_tables import show

        show(queries_table(found.lines))
    elif not found.unreachable:
        say(False, None, "no query is defined yet")
    calls.warn_of_silent(found.unreachable)


@query.command("show")
@click.argument("name", metavar="NAME", shell_complete=names_of("query"))
@home_option
@json_option
def show_query(name: str, home: str | None, as_json: bool) -> None:
    """Show query NAME: its boxes, its peers, and its state."""
    from medusa.tools.commands.medusa import listing

    found = listing.query(home, name)
    if as_json:
        say_json(found)
    else:
        from medusa.tools.commands.medusa.listing_screen import query_details
        from medusa.tools.commands.plain_tables import show

        show(query_details(found))
