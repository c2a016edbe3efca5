"""`medusa-peer token`: tokens for clients of this peer, and their rights."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import home_option, json_option, say, say_json


@click.group()
def token() -> None:
    """Give clients tokens of their own: each has a name, scopes and an end.

    The token in client.token, `owner`, allows everything. A running peer takes in every change
    within seconds.
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    metavar="SCOPES",
    required=True,
    help="Its rights, with commas: read, post, define, operate.",
)
@click.option(
    "--expires", metavar="DURATION", help="How long it counts, as in 90d (default: ever)."
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Where its holder finds the peer (default: client.listen of medusa.toml, if it has a "
    "port; else the holder needs this home).",
)
@home_option
@json_option
def add(  # noqa: PLR0917 - click passes by keyword
    name: str,
    scope: str,
    expires: str | None,
    address: str | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Make token NAME; prints it, once. Its holder shows it as $MEDUSA_TOKEN."""
    from medusa.tools.commands.peer import tokens
    from medusa.tools.home.folder import Home

    made = tokens.add(Home.locate(home), name, scope, expires, address)
    say(as_json, {"name": name, "token": made}, made)


@token.command("list")
@home_option
@json_option
def list_tokens(home: str | None, as_json: bool) -> None:
    """Show the tokens: their scopes, their end, and how many clients use them now."""
    from medusa.tools.commands import plain_tables
    from medusa.tools.commands.peer import tokens
    from medusa.tools.home.folder import Home

    shown = tokens.shown(Home.locate(home))
    if as_json:
        say_json([line.as_json() for line in shown])
    else:
        plain_tables.show(tokens.table(shown))


@token.command()
@click.argument("name")
@click.option("--address", metavar="HOST:PORT", help="As of `token add`.")
@home_option
@json_option
def rotate(name: str, address: str | None, home: str | None, as_json: bool) -> None:
    """Give token NAME another secret, and disconnect clients with the old one.

    The new secret of `owner` is in client.token.
    """
    from medusa.tools.commands.peer import tokens
    from medusa.tools.home.folder import Home

    place = Home.locate(home)
    made = tokens.rotate(place, name, address)
    if made is None:
        say(as_json, {"name": name, "file": str(place.token)}, f"{name}: see {place.token}")
    else:
        say(as_json, {"name": name, "token": made}, made)


@token.command()
@click.argument("name")
@home_option
@json_option
def revoke(name: str, home: str | None, as_json: bool) -> None:
    """Revoke token NAME, and disconnect clients that use it."""
    from medusa.tools.commands.peer import tokens
    from medusa.tools.home.folder import Home

    tokens.revoke(Home.locate(home), name)
    say(as_json, {"revoked": name}, f"revoked {name}")
