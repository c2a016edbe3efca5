"""Another participant's writer: nothing that it says of its own tuples costs another writer a
tuple."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import rows, schema_of, send_rows
from hostile_siege import Siege

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import END
from medusa.overlay.events import wall_clock
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa
from medusa.tools.daemon.peer import open_peer
from medusa.tools.home.config import load_config

IDLE_S = 2.0
FAR_US = 3_590 * 1_000_000
"""A time nearly as far ahead as a stream accepts by default, in microseconds."""
BUSY_S = 10.0
"""The additional delay of a delivery on a busy machine, in seconds."""

numbers = itertools.count()

Script = Callable[["Evil"], Awaitable[None]]


def now_us() -> int:
    return int(wall_clock() * 1e6)


@dataclass
class Evil:
    """A writer at its own peer, and the stream that it may post to."""

    home: str
    stream: str

    @asynccontextmanager
    async def client(self, producer: str | None = None) -> AsyncIterator[AsyncMedusaClient]:
        async with open_medusa(self.home, producer=producer) as client:
            yield client

    async def post(self, *times: int, producer: str = "evil", **more: object) -> None:
        """Post as a client that leaves without closing."""
        with suppress(_Gone):
            async with self.client(producer) as client:
                poster = await client.poster(self.stream)
                await poster.resume()
                table = rows([(time, 0) for time in times]) if times else None
                await poster.post(table, **more)  # type: ignore[arg-type]
                await poster.flush()
                raise _Gone


class _Gone(Exception):
    pass


async def ends(evil: Evil) -> None:
    await evil.post(now_us(), end=True)
    await evil.post(now_us(), boundary=END)
    async with evil.client() as client:
        await client.post_event(evil.stream, None, end=True)


async def promises_far(evil: Evil) -> None:
    await evil.post(boundary=now_us() + FAR_US)
    async with evil.client() as client:
        await client.post_event(evil.stream, None, boundary=now_us() + FAR_US)


async def posts_far(evil: Evil) -> None:
    await evil.post(now_us() + FAR_US)
    async with evil.client() as client:
        await client.post_event(evil.stream, rows([(now_us() + FAR_US, 0)]))


async def crawls(evil: Evil) -> None:
    """Post under ever new producer names, each a microsecond farther ahead than the last, and never
    finish."""
    first = now_us()
    for number in itertools.count():
        await evil.post(first + number, producer=f"p{number}")


async def posts_late(evil: Evil) -> None:
    async with evil.client("late") as client:
        for number in itertools.count():
            await send_rows(client, evil.stream, [(number, 0)])


@dataclass
class Honest:
    """The observations of the owner's live source."""

    posted: int = 0
    late: int = 0
    delivered: int = 0
    slowest_s: float = 0.0
    over: trio.Event = field(default_factory=trio.Event)

    async def post(self, client: AsyncMedusaClient, stream: str) -> None:
        poster = await client.poster(stream)
        while not self.over.is_set():
            self.posted += 1
            await poster.post(rows([(now_us(), self.posted)]))
            await poster.flush()
            self.late = poster.late
            await trio.sleep(0.02)

    async def read(self, client: AsyncMedusaClient, stream: str) -> None:
        async with client.subscribe(stream) as subscription:
            async for epoch in subscription:
                times = zip(
                    epoch.table.column("t").to_pylist(),
                    epoch.table.column("value").to_pylist(),
                    strict=True,
                )
                for time, value in times:
                    if value:
                        self.delivered += 1
                        self.slowest_s = max(self.slowest_s, (now_us() - time) / 1e6)


@pytest.mark.parametrize("script", [ends, promises_far, posts_far, crawls, posts_late])
async def test_a_script_costs_the_owner_no_tuple(
    siege: Siege, seconds: float, script: Script
) -> None:
    stream = f"medusa://mit.edu/written{next(numbers)}"
    honest, home = Honest(), siege.evil_home
    async with (
        open_peer(home, load_config(home)),
        open_medusa(siege.mit.home.folder) as client,
        trio.open_nursery() as nursery,
    ):
        await client.create_stream(
            StreamDefinition(
                stream,
                schema_of("mit.edu").name,
                writers=("evil.org",),
                idle_timeout_us=int(IDLE_S * 1e6),
            )
        )
        nursery.start_soon(honest.read, client, stream)
        nursery.start_soon(honest.post, client, stream)
        with trio.move_on_after(seconds + 2 * IDLE_S):
            await script(Evil(str(home.folder), stream))
            await trio.sleep_forever()
        honest.over.set()
        with trio.fail_after(DEADLINE_S):
            while honest.delivered < honest.posted - 1:  # noqa: ASYNC110 - of another task
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert honest.posted > 10
    assert not honest.late
    assert honest.slowest_s < 2 * IDLE_S + BUSY_S
