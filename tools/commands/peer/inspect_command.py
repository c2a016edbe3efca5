"""`medusa-peer inspect`: reads the home of a stopped peer."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import home_option, json_option, say_json, warn


@click.command()
@home_option
@json_option
@click.pass_context
def inspect(context: click.Context, home: str | None, as_json: bool) -> None:
    """Show the content of a stopped peer's home, without starting it or changing anything.

    Exits with 1 if a file is damaged, after showing all that can be read.
    """
    import msgspec

    from medusa.tools.commands import plain_tables
    from medusa.tools.commands.peer import inspection, inspection_screen
    from medusa.tools.home.folder import Home

    seen = inspection.inspect_home(Home.locate(home))
    if as_json:
        say_json(msgspec.to_builtins(seen))
    else:
        for number, table in enumerate(inspection_screen.tables(seen)):
            if number:
                click.echo()
            plain_tables.show(table)
    for damage in seen.damaged:
        warn(damage)
    if seen.damaged:
        context.exit(1)
