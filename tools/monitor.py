"""`medusa monitor`: ask, render, show; once, for ever, or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from engine.messages import Snapshot
from overlay.errors import MedusaError, UnavailableError, printable
from tools.async_client import AsyncMedusaClient, open_medusa
from tools.calls import ask
from tools.messages import MarketStatus
from tools.render import render

PATIENCE_S: Final = 2.0
"""A screen says soon that its peer is gone, and goes on trying."""


@dataclass(frozen=True)
class Seen:
    """What the peer answered. market: None where it has none."""

    snapshot: Snapshot
    market: MarketStatus | None


async def look(client: AsyncMedusaClient) -> Seen:
    """Ask the peer for all that a screen shows."""
    return Seen(await client.status(), await client.market_status())


def snapshot(home: str | None) -> dict[str, object]:
    """One snapshot for JSON; the peer's market, if it has one, as its field `market`."""
    seen = ask(home, look)
    fields = msgspec.structs.asdict(seen.snapshot)
    if seen.market is not None:
        fields["market"] = seen.market
    return fields


def print_once(home: str | None) -> None:
    """One screen, as long as it takes."""
    seen = ask(home, look)
    console = Console()
    console.print(render(seen.snapshot, console.width, market=seen.market))


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
    last: Seen | None = None
    while True:
        failure: MedusaError | None = None
        try:
            last = await look(client)
        except UnavailableError as error:
            failure = error
        live.update(screen(last, failure, console.width, console.height), refresh=True)
        await trio.sleep(interval_s)


def screen(
    seen: Seen | None, failure: MedusaError | None, width: int, height: int
) -> RenderableType:
    """The snapshot, under a line that says why it is old if it is."""
    told = [Text(printable(f" no answer: {failure}"), "bold red", no_wrap=True)] if failure else []
    drawn = [render(seen.snapshot, width, height - len(told), seen.market)] if seen else []
    return Group(*told, *drawn)
