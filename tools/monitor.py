"""`medusa monitor`: ask, render, show; once, for ever, or as JSON."""

from __future__ import annotations

from typing import Final

import msgspec
import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from engine.messages import Snapshot
from overlay.errors import MedusaError, UnavailableError
from tools.async_client import AsyncMedusaClient, open_medusa
from tools.calls import ask
from tools.render import render

PATIENCE_S: Final = 2.0
"""A screen says soon that its peer is gone, and goes on trying."""


def snapshot_json(home: str | None) -> str:
    """One snapshot as JSON."""
    return msgspec.json.encode(ask(home, lambda client: client.status())).decode()


def print_once(home: str | None) -> None:
    """One screen, as long as it takes."""
    snapshot = ask(home, lambda client: client.status())
    console = Console()
    console.print(render(snapshot, console.width))


def watch(home: str | None, interval_s: float) -> None:
    """Screens until Ctrl-C."""

    async def main() -> None:
        async with open_medusa(home, patience_s=PATIENCE_S) as client:
            console = Console()
            # No refresh thread: a screen is drawn when there is something new to draw.
            with Live(console=console, auto_refresh=False, screen=True) as live:
                await show(client, live, console, interval_s)

    trio.run(main)


async def show(client: AsyncMedusaClient, live: Live, console: Console, interval_s: float) -> None:
    """Draw the peer's snapshots; while it does not answer, the last one and why."""
    last: Snapshot | None = None
    while True:
        failure: MedusaError | None = None
        try:
            last = await client.status()
        except UnavailableError as error:
            failure = error
        live.update(screen(last, failure, console.width, console.height), refresh=True)
        await trio.sleep(interval_s)


def screen(
    snapshot: Snapshot | None, failure: MedusaError | None, width: int, height: int
) -> RenderableType:
    """The snapshot, under a line that says why it is old if it is."""
    told = [Text(f" no answer: {failure}", "bold red", no_wrap=True)] if failure else []
    drawn = [render(snapshot, width, height - len(told))] if snapshot else []
    return Group(*told, *drawn)
