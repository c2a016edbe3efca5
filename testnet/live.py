"""A scenario's screen, drawn over and over while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from rich.console import Console, RenderableType
from rich.live import Live


@asynccontextmanager
async def open_live(
    console: Console,
    frame: Callable[[], RenderableType],
    last: Callable[[], RenderableType],
    frame_s: float,
) -> AsyncIterator[None]:
    """Draw frames while the body runs, one each `frame_s` seconds, and leave `last` there: by then
    the federation is gone, and what stays is what was done."""
    with Live(
        console=console, auto_refresh=False, vertical_overflow="crop", redirect_stdout=False
    ) as live:

        async def draw() -> None:
            while True:
                live.update(frame(), refresh=True)
                await trio.sleep(frame_s)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(draw)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()
        live.update(last(), refresh=True)
