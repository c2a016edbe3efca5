"""Tells at a peer's terminal what a person must mend: the log and the monitor may not be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

LOOK_S: Final = 1.0
"""Seconds between two looks: a person who has just started the peer still watches."""


@asynccontextmanager
async def telling(
    warnings: Callable[[], tuple[str, ...]], tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """While the block lasts, tell each warning when it begins to hold, once.

    Args:
        warnings: those that hold now.
    """

    async def watch() -> None:
        told: set[str] = set()
        while True:
            now = warnings()
            for warning in now:
                if warning not in told:
                    tell(warning)
            told = set(now)
            await trio.sleep(LOOK_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield
        nursery.cancel_scope.cancel()
