"""`medusa monitor`: asks the peer and shows its answer once, as JSON, or repeatedly."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Final

import msgspec
import trio
from rich.console import Console
from rich.live import Live

from medusa.overlay.errors import MedusaError, UnavailableError
from medusa.tools.client.at_prompt import ask
from medusa.tools.client.calls import ClientCalls, open_calls
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.monitor.keys import one_by_one, pressed_keys
from medusa.tools.monitor.render import render
from medusa.tools.monitor.screen import Screen, Seen, screen
from medusa.tools.monitor.view import View, pressed

PATIENCE_S: Final = 2.0
"""Seconds until the screen reports that its peer is gone; it continues to try."""


async def look(client: ClientCalls) -> Seen:
    """Ask the peer for all data of a screen."""
    return Seen(await client.status(), await client.market_status())


def snapshot(home: str | None) -> dict[str, object]:
    """One snapshot for JSON; the peer's market, if it has one, as its field `market`."""
    seen = ask(home, look)
    fields = msgspec.structs.asdict(seen.snapshot)
    if seen.market is not None:
        fields["market"] = seen.market
    return fields


def print_once(home: str | None) -> None:
    """Print one screen of full length."""
    seen = ask(home, look)
    console = Console()
    console.print(render(seen.snapshot, console.width, market=seen.market))


def watch(home: str | None, interval_s: float) -> None:
    """Show screens until `q`, Ctrl-C or a signal. If keys cannot be read, as from a pipe, there are
    none."""
    terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None

    async def main() -> None:
        async with open_calls(home, patience_s=PATIENCE_S) as client:
            console = Console()
            with (
                one_by_one(terminal) if terminal is not None else nullcontext(),
                # no refresh thread: a screen is drawn when something has changed
                Live(console=console, auto_refresh=False, screen=True) as live,
            ):
                keys = None if terminal is None else pressed_keys(terminal)
                await Monitor(client, live, console, interval_s).run(keys)

    run_interruptible(main)


class Monitor:
    """The last answer of a peer and the user's view, drawn whenever one of them changes."""

    def __init__(
        self, client: ClientCalls, live: Live, console: Console, interval_s: float
    ) -> None:
        self._client = client
        self._live = live
        self._console = console
        self._interval_s = interval_s
        self._seen: Seen | None = None
        self._failure: MedusaError | None = None
        self._view = View()

    async def run(self, keys: AsyncIterator[str] | None = None) -> None:
        """Run until a key or a signal ends it.

        Args:
            keys: see `medusa.tools.monitor.keys`; None: there are no keys.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask)
            nursery.start_soon(self._heed_signals, nursery.cancel_scope)
            if keys is not None:
                await self._heed_keys(keys)
                nursery.cancel_scope.cancel()

    async def _ask(self) -> None:
        """Ask the peer repeatedly. While it does not answer, its last answer stays, with the
        reason."""
        while True:
            try:
                self._seen, self._failure = await look(self._client), None
            except UnavailableError as error:
                self._failure = error
            self._draw()
            await trio.sleep(self._interval_s)

    async def _heed_keys(self, keys: AsyncIterator[str]) -> None:
        async for key in keys:
            view = pressed(self._view, key, self._screen().shown)
            if view is None:
                return
            self._view = view
            self._draw()

    async def _heed_signals(self, scope: trio.CancelScope) -> None:
        """Handle signals of the terminal: it is gone, or has another size."""
        with trio.open_signal_receiver(signal.SIGHUP, signal.SIGWINCH) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    scope.cancel()
                    return
                self._draw()

    def _screen(self) -> Screen:
        width, height = self._console.size
        return screen(self._seen, self._failure, width, height, self._view)

    def _draw(self) -> None:
        self._live.update(self._screen().drawn, refresh=True)
