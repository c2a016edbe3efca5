"""The command lines of the programs, as processes of this Python."""

from __future__ import annotations

import sys


def medusa_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "medusa.tools.commands.medusa.medusa_command", *arguments]


def peer_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "medusa.tools.commands.peer.peer_command", *arguments]
