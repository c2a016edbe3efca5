"""`medusa`: what a participant's clients do, at a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import click

from tools import command_line
from tools.availability_options import availability_options, requested
from tools.command_line import also_option, home_option, json_option, say, say_json, warn
from tools.travel_command import copy_query, view

if TYPE_CHECKING:
    from engine.availability_request import AvailabilityRequest
    from engine.messages import Objects

SHOWN_ROWS = 10
"""Numbers of rows in one line for people; --json has all."""


def main() -> NoReturn:
    command_line.run(medusa)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="medusa-federation")
def medusa() -> None:
    """Define streams and queries, post, subscribe and watch: through your own Medusa peer."""


@medusa.group()
def schema() -> None:
    """Define schemas."""


@medusa.group()
def stream() -> None:
    """Define streams."""


@medusa.group()
def query() -> None:
    """Define, start, stop, copy and delete queries."""


def _create(
    file: str, home: str | None, as_json: bool, availability: AvailabilityRequest | None = None
) -> None:
    from tools import calls

    names = calls.create(home, file, availability)
    say(as_json, {"created": list(names)}, "\n".join(names))


def _add_create(group: click.Group, what: str) -> None:
    @group.command("create", help=f"Define the {what} in FILE.xml (- for standard input).")
    @click.argument("file", metavar="FILE.xml")
    @home_option
    @json_option
    def create(file: str, home: str | None, as_json: bool) -> None:
        _create(file, home, as_json)


_add_create(schema, "schemas")
_add_create(stream, "streams")


@query.command("create")
@click.argument("file", metavar="FILE.xml")
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
    """Define the queries, and the schemas and streams beside them, in FILE.xml (- for standard
    input).

    What is said of availability here counts for all queries in the file, instead of their own
    attributes.
    """
    _create(file, home, as_json, requested(ha, recovery, bound, checkpoint, secondary))


def _add_status(verb: str, status: str, help_text: str) -> None:
    @query.command(verb, help=help_text)
    @click.argument("name")
    @home_option
    @json_option
    def change(name: str, home: str | None, as_json: bool) -> None:
        from tools import calls

        calls.set_query_status(home, name, status)
        say(as_json, {"query": name, "status": status}, f"{name}: {status}")


_add_status("start", "RUNNING", "Start query NAME.")
_add_status("stop", "STOPPED", "Stop query NAME; it goes on from where it stood when started.")
_add_status("delete", "DELETED", "Delete query NAME and the streams it produces.")


@query.command("modify")
@click.argument("name")
@click.argument("file", metavar="[FILE.xml]", required=False)
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
    """Give boxes of query NAME other parameters, while it runs, exactly from one time on.

    What: by --box and --set, or by a document, FILE.xml (- for standard input), of <modify>
    elements. Results up to that time stay as they are.
    """
    from tools import modify_query as modifying

    if file is None and box is not None and settings:
        wish = modifying.from_prompt(box, settings, at)
    elif file is not None and box is None and not settings:
        wish = modifying.from_document(file, at)
    else:
        raise click.UsageError("give --box BOX and --set NAME=VALUE, or a FILE.xml")
    done = modifying.modify(home, name, wish, alone=alone)
    say(as_json, {"query": name, "since": done.since}, modifying.in_words(done))


@medusa.command()
@click.argument("stream")
@click.option("--to", metavar="PEER", required=True, help="The beginning of its id, or home.")
@home_option
@json_option
def move(stream: str, to: str, home: str | None, as_json: bool) -> None:
    """Let another peer of ours compute STREAM, which a query of this peer makes.

    Nothing is lost or repeated, and who subscribed goes on reading.
    """
    import msgspec

    from tools import calls

    moved = calls.move_task(home, stream, to)
    say(
        as_json,
        msgspec.to_builtins(moved),
        f"{stream}: computed by {moved.target[:8]} (before: {moved.source[:8]})",
    )


@medusa.command()
@click.argument("name")
@home_option
@json_option
def lookup(name: str, home: str | None, as_json: bool) -> None:
    """Show what the catalog has under NAME."""
    import json

    from tools import calls

    found = calls.lookup(home, name)
    lines = []
    for kind, entry in found.items():
        lines += [f"{kind} {name}", *calls.told_of(kind, entry), json.dumps(entry, indent=2)]
    say(as_json, found, "\n".join(lines))


@medusa.command("list")
@home_option
@json_option
def list_names(home: str | None, as_json: bool) -> None:
    """List the objects of every participant that answers."""
    import msgspec

    from tools import calls

    objects = calls.list_objects(home)
    lines = [
        f"{kind:<9} {name}{_told(name, objects) if kind == 'query' else ''}"
        for kind, names in objects.names.items()
        for name in names
    ]
    value = {
        "names": objects.names,
        "unreachable": objects.unreachable,
        "availability": msgspec.to_builtins(objects.availability),
    }
    say(as_json, value, "\n".join(lines) or "nothing is defined yet")
    if objects.unreachable:
        warn(f"these peers did not answer: {', '.join(id_[:8] for id_ in objects.unreachable)}")


def _told(query_name: str, objects: Objects) -> str:
    from tools.availability_words import in_words

    availability = objects.availability.get(query_name)
    return f"  ({in_words(availability)})" if availability else ""


@medusa.command()
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
    metavar="ID",
    help="Number the posts as ID: the same command run again after a crash posts only the rest.",
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
    ignore_extra: bool,
    revisions: bool,
    patience: float,
    home: str | None,
    also: tuple[str, ...],
    as_json: bool,
) -> None:
    """Post the rows of FILE (- for standard input) to STREAM.

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
            ignore_extra=ignore_extra,
            patience_s=patience,
            also=also,
            revisions=revisions,
        ),
    )
    told = f"{done.rows:,} rows"
    if done.late:
        told += f", {done.late:,} of them late"
    if done.duplicates:
        told += f", {done.duplicates:,} posts were there already"
    if done.missed:
        shown = ", ".join(map(str, done.missed[:SHOWN_ROWS]))
        more = ", ..." if len(done.missed) > SHOWN_ROWS else ""
        told += f"; {len(done.missed):,} found nothing to revise: row {shown}{more}"
    value: dict[str, object] = {
        "stream": stream_name,
        "rows": done.rows,
        "late": done.late,
        "duplicates": done.duplicates,
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


@medusa.command()
@click.argument("stream_name", metavar="STREAM")
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
    type=click.Choice(["csv", "json", "arrow"]),
    default="csv",
    help="Of the output (default: csv).",
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
    "--patience", default=60.0, metavar="SECONDS", help="Bear a broken link so long (default: 60)."
)
@home_option
@also_option
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def subscribe(  # noqa: PLR0917 - click passes by keyword
    stream_name: str,
    after: str,
    until: str,
    kind: str,
    corrections: str | None,
    subscriber: str,
    patience: float,
    home: str | None,
    also: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the tuples of STREAM, which may be a view, to standard output, epoch by epoch."""
    from tools import print_stream
    from tools.times import parse_time

    print_stream.print_stream(
        home,
        stream_name,
        print_stream.Options(
            kind="json" if as_json else kind,
            after=parse_time(after),
            until=parse_time(until),
            subscriber=subscriber,
            patience_s=patience,
            also=also,
            corrections=corrections,
        ),
    )


@medusa.command()
@click.option("--once", is_flag=True, help="Print one screen and stop.")
@click.option("--interval", default=1.0, metavar="SECONDS", help="Between screens (default: 1 s).")
@home_option
@json_option
def monitor(once: bool, interval: float, home: str | None, as_json: bool) -> None:
    """Watch the federation: peers, streams, tasks, events."""
    from tools import monitor as screen

    if as_json:
        say_json(screen.snapshot(home))
    elif once:
        screen.print_once(home)
    else:
        screen.watch(home, interval)


medusa.add_command(view)
query.add_command(copy_query)


if __name__ == "__main__":
    main()
