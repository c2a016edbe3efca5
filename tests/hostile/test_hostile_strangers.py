"""Strangers, who were never admitted, open sockets that stay silent, send garbage, or repeat
handshakes."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
import trio
from deadline import DEADLINE_S
from hostile_siege import Siege

from medusa.overlay.errors import MedusaError

SILENCE, GARBAGE, HELLO = "silence", "garbage", "hello"


async def get_in(siege: Siege, tries: int) -> None:
    """Enter the federation. tries: on a busy machine the greeting may take too long."""
    for _ in range(tries - 1):
        with suppress(MedusaError):
            async with siege.evil.peer().connection(siege.address):
                return
    async with siege.evil.peer().connection(siege.address):
        pass


@pytest.mark.parametrize("kind", [SILENCE, GARBAGE, HELLO])
async def test_connections_of_strangers(siege: Siege, seconds: float, kind: str) -> None:
    """Strangers keep three hundred open, and replace each that is closed; honest members still
    enter."""
    hello = bytes.fromhex("16030100c8010000c40303") + os.urandom(200)  # a TLS hello cut short

    async def annoy() -> None:
        while True:
            with suppress(OSError, trio.BrokenResourceError):
                async with await trio.open_tcp_stream(*siege.address) as stream:
                    if kind == GARBAGE:
                        await stream.send_all(os.urandom(2_000))
                    elif kind == HELLO:
                        await stream.send_all(hello[:100])
                    await stream.receive_some()
            await trio.sleep(0.05)

    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(annoy)
        await trio.sleep(seconds / 2)
        with trio.fail_after(DEADLINE_S):
            await get_in(siege, tries=100 if watch.is_brief else 1)
        await trio.sleep(seconds / 2)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()
