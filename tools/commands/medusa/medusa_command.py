"""`medusa`: the command of a participant's clients, and its subcommands of one call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

import click

from medusa.overlay.errors import UnavailableError
from medusa.tools.commands import command_line
from medusa.tools.commands.command_line import home_option, json_option, say, say_json, warn
from medusa.tools.commands.completion import SHELLS, names_of, script
from medusa.tools.commands.medusa.create_command import create_command
from medusa.tools.commands.medusa.function_command import function
from medusa.tools.commands.medusa.post_command import post
from medusa.tools.commands.medusa.query_command import query
from medusa.tools.commands.medusa.stream_command import stream
from medusa.tools.commands.medusa.subscribe_command import subscribe
from medusa.tools.commands.medusa.table_command import table
from medusa.tools.commands.medusa.test_command import run_cases
from medusa.tools.commands.medusa.travel_command import view
from medusa.tools.commands.medusa.try_command import try_query

if TYPE_CHECKING:
    from medusa.engine.api.messages import Objects


def main() -> NoReturn:
    command_line.run(medusa)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="medusa-federation")
@click.option(
    "--token-file",
    metavar="FILE",
    help="Use the client token in FILE, as made by `medusa-peer token add`, "
    "instead of the owner's (default: $MEDUSA_TOKEN).",
)
def medusa(token_file: str | None) -> None:
    """Define streams and queries, post, subscribe and watch: through your own Medusa peer."""
    if token_file is not None:
        from medusa.tools.client.dialling import TOKEN_VARIABLE
        from medusa.tools.home.token_text import read_token

        os.environ[TOKEN_VARIABLE] = read_token(token_file)


@click.group()
def schema() -> None:
    """Define and delete schemas."""


schema.add_command(create_command("schemas"))


@schema.command("delete")
@click.argument("name", metavar="SCHEMA", shell_complete=names_of("schema"))
@home_option
@json_option
def delete_schema(name: str, home: str | None, as_json: bool) -> None:
    """Delete SCHEMA; refused while a stream has it."""
    from medusa.tools.client.at_prompt import ask

    ask(home, lambda client: client.delete_schema(name))
    say(as_json, {"deleted": name}, f"{name}: deleted")


@click.group()
def peer() -> None:
    """See the peers of the federation; `medusa-peer` is for your own."""


@peer.command("list")
@home_option
@json_option
def list_peers(home: str | None, as_json: bool) -> None:
    """List the known peers, and their states."""
    from medusa.tools.client.at_prompt import absences
    from medusa.tools.commands.medusa import listing

    seen = listing.snapshot(home)
    if as_json:
        say_json(seen.peers)
    else:
        from medusa.tools.commands.medusa.listing_screen import peers_table
        from medusa.tools.commands.plain_tables import show

        show(peers_table(seen))
    for warning in absences(seen):
        warn(warning)


for each in (schema, stream, query, view, peer, post, subscribe, table, function):
    medusa.add_command(each)
for each in (try_query, run_cases):
    medusa.add_command(each)


@medusa.command()
@click.option(
    "--check",
    is_flag=True,
    help="For health probes: print the troubles of your peer, one a line, and nothing if it has "
    "none; exit with 1 if one keeps it from its work.",
)
@home_option
@json_option
def status(check: bool, home: str | None, as_json: bool) -> None:
    """Show the troubles and the state of your peer, and absent peers."""
    from medusa.tools.commands.medusa import listing

    if check:
        _check(home, as_json)
        return
    try:
        seen = listing.snapshot(home)
    except UnavailableError as error:
        if as_json:
            say_json(listing.snapshot_of_silence(home, error))
        raise
    if as_json:
        say_json(seen)
    else:
        from medusa.tools.commands.medusa.listing_screen import status_details
        from medusa.tools.commands.plain_tables import show

        show(status_details(seen))


def _check(home: str | None, as_json: bool) -> None:
    from medusa.tools.client.at_prompt import ask, own_troubles
    from medusa.tools.commands.medusa import listing
    from medusa.tools.monitor.troubles import in_words

    try:
        seen = ask(home, lambda client: client.status(federation=False))
    except UnavailableError as error:
        if as_json:
            silent = listing.snapshot_of_silence(home, error)
            say_json({"well": False, "troubles": own_troubles(silent)})
        raise
    troubles = own_troubles(seen)
    well = all(each.reason.is_warning for each in troubles)
    if as_json:
        say_json({"well": well, "troubles": troubles})
    elif troubles:
        say(False, None, "\n".join(in_words(each, seen.at) for each in troubles))
    if not well:
        raise click.exceptions.Exit(command_line.EXIT_FAILED)


@medusa.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what SHELL reads to complete the commands.

    \b
    bash: eval "$(medusa completion bash)"      in ~/.bashrc
    zsh:  eval "$(medusa completion zsh)"       in ~/.zshrc, after compinit
    fish: medusa completion fish | source       in ~/.config/fish/config.fish
    """
    click.echo(script(shell))


@medusa.command()
@click.argument("name", shell_complete=names_of())
@home_option
@json_option
def lookup(name: str, home: str | None, as_json: bool) -> None:
    """Show the catalog's entries under NAME, and the state of a query of ours."""
    import json

    import msgspec

    from medusa.tools.commands.medusa import calls

    found, tasks = calls.lookup(home, name)
    lines = calls.how_it_goes(tasks)
    for kind, entry in found.items():
        if isinstance(entry, str):  # we may not read it
            lines += [f"{kind} {name}", entry]
            continue
        lines += [f"{kind} {name}", *calls.told_of(kind, entry), json.dumps(entry, indent=2)]
    if readers := calls.readers_of(found.get("stream")):
        found["readers"] = {name: readers}
    if tasks:
        found["tasks"] = msgspec.to_builtins(tasks)
    say(as_json, found, "\n".join(lines))


@medusa.command("list")
@home_option
@json_option
def list_names(home: str | None, as_json: bool) -> None:
    """List the objects of every participant that answers."""
    import msgspec

    from medusa.tools.commands.medusa import calls

    objects = calls.list_objects(home)
    lines = [
        f"{kind:<9} {name}{_note_of(name, objects) if kind == 'query' else ''}"
        for kind, names in objects.names.items()
        for name in names
    ]
    value = {
        "names": objects.names,
        "unreachable": objects.unreachable,
        "availability": msgspec.to_builtins(objects.availability),
        "failing": objects.failing,
    }
    if as_json or lines or not objects.unreachable:
        say(as_json, value, "\n".join(lines) or "nothing is defined yet")
    calls.warn_of_silent(objects.unreachable)


def _note_of(query_name: str, objects: Objects) -> str:
    from medusa.tools.monitor.availability_words import in_words

    availability = objects.availability.get(query_name)
    told = f"  ({in_words(availability)})" if availability else ""
    failing = objects.failing.get(query_name)
    return f"{told}  failing: {failing}" if failing else told


@medusa.command()
@click.argument("stream", shell_complete=names_of("stream"))
@click.option("--to", metavar="PEER", required=True, help="How its id begins; home: the query's.")
@home_option
@json_option
def move(stream: str, to: str, home: str | None, as_json: bool) -> None:
    """Move the task that makes STREAM, of a query of this peer, to another peer of ours.

    `medusa query explain` names the tasks of a query by their streams. No tuple is lost or
    repeated, and subscribers go on reading.
    """
    import msgspec

    from medusa.tools.commands.medusa import calls

    moved = calls.move_task(home, stream, to)
    say(
        as_json,
        msgspec.to_builtins(moved),
        f"{stream}: computed by {moved.target[:8]} (before: {moved.source[:8]})",
    )


@medusa.command()
@click.option("--once", is_flag=True, help="Print one screen and stop.")
@click.option("--interval", default=1.0, metavar="SECONDS", help="Between screens (default: 1 s).")
@home_option
@json_option
def monitor(once: bool, interval: float, home: str | None, as_json: bool) -> None:
    """Watch the federation: peers, streams, tasks, events."""
    from medusa.tools.monitor import watch as screen

    if as_json:
        say_json(screen.snapshot(home))
    elif once:
        screen.print_once(home)
    else:
        screen.watch(home, interval)


if __name__ == "__main__":
    main()
