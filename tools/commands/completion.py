"""Completion of the commands in bash, zsh and fish."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import click
from click.shell_completion import get_completion_class, shell_complete

COMMANDS: Final = ("medusa", "medusa-peer", "medusa-testnet")

SHELLS: Final = ("bash", "zsh", "fish")


ANSWER_S: Final = 1.0
"""Seconds that the shell waits for names of the peer: a person has pressed a key."""

WHOLE_NAMES: Final = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}"
"""A part of the script for bash, which otherwise splits medusa://mit.edu/conns into three words."""

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def script(shell: str) -> str:
    """The shell script that completes all commands."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no {shell}"
    sources = [kind(click.Group(name), {}, name, variable(name)).source() for name in COMMANDS]
    return "\n".join([*sources, WHOLE_NAMES] if shell == "bash" else sources)


def names_of(kind: str = "") -> Complete:
    """Complete an argument by the names of objects of that kind, or of any. There are none if the
    peer of the home does not answer at once."""

    def find(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        names = _listed(context.params.get("home"))
        found = {name for label in names if label == (kind or label) for name in names[label]}
        return sorted(name for name in found if name.startswith(incomplete))

    return find


def _listed(home: str | None) -> Mapping[str, tuple[str, ...]]:
    import trio  # imported here: only when the shell asks

    from medusa.overlay.errors import MedusaError
    from medusa.tools.client.calls import open_calls

    async def ask() -> Mapping[str, tuple[str, ...]]:
        with trio.move_on_after(ANSWER_S):
            async with open_calls(home, patience_s=ANSWER_S) as client:
                return (await client.list_objects()).names
        return {}

    with suppress(MedusaError, OSError):
        return trio.run(ask)
    return {}


def complete(command: click.Command, name: str) -> None:
    """If the shell asks for completions instead of a run, write them and exit."""
    asked = os.environ.get(variable(name))
    if asked:
        sys.exit(shell_complete(command, {}, name, variable(name), asked))


def variable(name: str) -> str:
    """The environment variable by which click's script asks the command for completions."""
    return f"_{name}_COMPLETE".replace("-", "_").upper()
