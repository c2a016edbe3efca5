"""A hostile producer and the messages that it sends to an honest peer that copies its stream."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import hostile_arrow
import pytest
import trio
from engine_peers import rows, schema_of
from hostile_siege import Siege

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.objects.view import Range, View
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import Subscribe, Tuples
from medusa.overlay.rpc import Caller, Duplex
from medusa.tools.client.async_client import open_medusa
from medusa.tools.daemon.peer import Peer, open_peer
from medusa.tools.home.config import load_config

Hostility = Callable[[Duplex], Awaitable[None]]
SCHEMA = schema_of("evil.org")
names = itertools.count()


def part(stimes: list[int]) -> bytes:
    """Return rows of the stream as a producer sends them."""
    table = rows([(stime, 0) for stime in stimes])
    numbered = table.add_column(0, "seq", [table.column("t")])
    return bytes(encode(numbered.add_column(0, "stime", [table.column("t")]).cast(SCHEMA.source)))


@asynccontextmanager
async def hostile_producer(siege: Siege, send: Hostility) -> AsyncIterator[Peer]:
    """Give a peer of evil.org, honest except in what it sends to subscribers, and a view of mit.edu
    that copies its stream."""
    name = f"flood{next(names)}"
    stream = f"medusa://evil.org/{name}"

    async def subscribe(_caller: Caller, _request: Subscribe, duplex: Duplex) -> None:
        await send(duplex)
        await trio.sleep_forever()

    async with open_peer(siege.evil_home, load_config(siege.evil_home)) as peer:
        async with open_medusa(siege.evil_home.folder) as client:
            await client.create_schema(SCHEMA)
            await client.create_stream(StreamDefinition(stream, SCHEMA.name, readers=("*",)))
        service = peer.engine.overlay.service
        del service._methods["subscribe"]
        service.streaming("subscribe", Subscribe, subscribe)
        async with open_medusa(siege.mit.home.folder) as client:
            view = f"medusa://mit.edu/{name}"
            await client.create_view(View(view, stream, Range(0, 10**14)))
            yield peer
            await client.delete_view(view)


async def one_stime_without_end(duplex: Duplex) -> None:
    body = part([7] * 200_000)
    while True:
        await duplex.send(Tuples(BEGINNING, None, 200_000), body)


async def tiny_epochs(duplex: Duplex) -> None:
    after = 0
    while True:
        await duplex.send(Tuples(after, after + 1, 1), part([after + 1]))
        after += 1


async def empty_epochs(duplex: Duplex) -> None:
    for after in itertools.count(1):
        await duplex.send(Tuples(after, after + 1, 0), b"")


async def bombs(duplex: Duplex) -> None:
    fixed = SCHEMA.source.remove(3)
    body = hostile_arrow.bomb(fixed, 2**20)
    while True:
        await duplex.send(Tuples(BEGINNING, 10, 2**20), body)


async def padded(duplex: Duplex) -> None:
    table = rows([(1, 0)])
    numbered = table.add_column(0, "seq", [table.column("t")])
    few = numbered.add_column(0, "stime", [table.column("t")]).cast(SCHEMA.source)
    body = hostile_arrow.padded(few, 7 * 2**20)
    while True:
        await duplex.send(Tuples(BEGINNING, None, 1), body)


@pytest.mark.parametrize("send", [one_stime_without_end, tiny_epochs, empty_epochs, bombs, padded])
async def test_a_hostile_producers_messages_do_no_harm(
    siege: Siege, seconds: float, send: Hostility
) -> None:
    async with siege.watched(seconds) as watch, hostile_producer(siege, send):
        await trio.sleep(seconds)
    print(watch)
    watch.check()
