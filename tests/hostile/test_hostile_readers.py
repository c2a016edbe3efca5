"""Members that subscribe and do not read, or ask for more than their share."""

from __future__ import annotations

import trio
from engine_peers import rows
from hostile_siege import Siege, fill, open_siege

from engine.messages import Subscribe
from tools.async_client import open_medusa


async def never_read(siege: Siege, stream: str, subscriptions: int, seconds: float) -> None:
    """Subscriptions on one connection, none of which gives any credit beyond the first."""
    async with siege.evil.peer().wire(siege.address) as wire:
        for _ in range(subscriptions):
            await wire.call("subscribe", Subscribe(stream))
        await trio.sleep(seconds)


async def test_subscribers_that_never_read() -> None:
    async with open_siege() as siege:
        async with open_medusa(siege.mit.home.folder) as client:
            tables = [
                rows([(t, t) for t in range(n * 100_000, (n + 1) * 100_000)]) for n in range(8)
            ]
            stream = await fill(client, "large", tables)
        async with siege.watched() as watch:
            await never_read(siege, stream, 300, 5.0)
        print(watch)
        watch.check()
