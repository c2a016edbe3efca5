"""Has click parse a command of medusa-testnet, and runs nothing: a mistyped option ends with 2."""

from __future__ import annotations

import sys

import click

from medusa.testnet.command import main

with main.make_context("medusa-testnet", sys.argv[1:]) as context:
    name, command, rest = main.resolve_command(context, context.protected_args + context.args)
    assert command is not None
    assert isinstance(command, click.Command)
    command.make_context(name, rest, parent=context).close()
