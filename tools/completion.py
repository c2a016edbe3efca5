"""Completion of the commands in bash, zsh and fish."""

from __future__ import annotations

import os
import sys
from typing import Final

import click
from click.shell_completion import get_completion_class, shell_complete

COMMANDS: Final = ("medusa", "medusa-peer", "medusa-testnet")

SHELLS: Final = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """What the shell reads to complete all commands."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no {shell}"
    return "\n".join(
        kind(click.Group(name), {}, name, variable(name)).source() for name in COMMANDS
    )


def complete(command: click.Command, name: str) -> None:
    """Where the shell asks for completions instead of a run: write them, and exit."""
    asked = os.environ.get(variable(name))
    if asked:
        sys.exit(shell_complete(command, {}, name, variable(name), asked))


def variable(name: str) -> str:
    """Of the environment, by which a command's script asks it; click's way."""
    return f"_{name}_COMPLETE".replace("-", "_").upper()
