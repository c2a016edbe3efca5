"""Runs commands in this process; `medusa` also beside peers in it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
import pytest
import trio
from deadline import DEADLINE_S

from medusa.tools.commands import command_line
from medusa.tools.commands.medusa.medusa_command import medusa


def entered(
    captured: pytest.CaptureFixture[str], command: click.Command, *arguments: str
) -> tuple[int, str, str]:
    """Run a command as a person enters it; return its exit code, its output and its errors."""
    with pytest.raises(SystemExit) as left:
        command_line.run(command, arguments)
    assert isinstance(left.value.code, int)
    return left.value.code, *captured.readouterr()


class Prompt:
    """Runs `medusa` in a thread, since it has an event loop of its own."""

    def __init__(self, home: Path, captured: pytest.CaptureFixture[str]) -> None:
        self._home = home
        self._captured = captured

    async def __call__(self, *arguments: str) -> str:
        """Run the command, which must succeed; return its output."""
        code, out, err = await self.outcome(*arguments)
        assert (code, err) == (0, ""), (arguments, err)
        return out

    async def refused(self, *arguments: str) -> str:
        """Run the command, which must fail; return the one line of its error."""
        code, out, err = await self.outcome(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), (arguments, out, err)
        return err.removeprefix("medusa: ").rstrip("\n")

    async def outcome(self, *arguments: str) -> tuple[int, str, str]:
        given = [*arguments, "--home", str(self._home)]
        self._captured.readouterr()
        with trio.fail_after(DEADLINE_S):
            return await trio.to_thread.run_sync(partial(entered, self._captured, medusa, *given))
