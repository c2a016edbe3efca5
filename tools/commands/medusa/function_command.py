"""`medusa function`: the functions of the language. It needs no peer."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import json_option, say_json


@click.group()
def function() -> None:
    """List and show the functions that queries may call."""


@function.command("list")
@json_option
def list_functions(as_json: bool) -> None:
    """List the functions of expressions and of windows."""
    from medusa.tools.commands.medusa import functions_shown

    if as_json:
        say_json({"functions": functions_shown.every()})
    else:
        functions_shown.print_list()


def _names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from medusa.tools.commands.medusa import (
        functions_shown,
    )  # imported here: only when the shell asks

    return [name for name in functions_shown.names() if name.startswith(incomplete.lower())]


@function.command("show")
@click.argument("name", metavar="FUNCTION", shell_complete=_names)
@json_option
def show_function(name: str, as_json: bool) -> None:
    """Show FUNCTION: its operands, what it gives, and examples."""
    from medusa.tools.commands.medusa import functions_shown

    if as_json:
        say_json(functions_shown.one(name))
    else:
        functions_shown.print_one(name)
