"""A small federation with a windowed query, whose right answer every scenario can compute itself.
Run as a program with a seed it prints the digest of one eventful scenario: two runs must agree."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pyarrow as pa
import trio

from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.testnet.simulation.federation import Federation
from medusa.testnet.simulation.simulate import Outcome, run_simulation
from medusa.testnet.simulation.world import World
from medusa.testnet.virtual.links import LinkModel
from medusa.tools.client.async_client import AsyncMedusaClient, Subscription

SECOND = 1_000_000
SOURCE, QUERY, COUNTS = (f"medusa://{name}" for name in ("a.edu/s", "b.edu/q", "b.edu/n"))
BAD_WEATHER = LinkModel(0.001, 0.004, loss=0.08, duplicate=0.05, reorder=0.1)
OWNER = "a.edu/0"
"""The peer of the stream's owner."""

PEERS = Federation({"a.edu": 1, "b.edu": 2, "c.edu": 1}, {"engine": {"epoch_s": 0.5}})


def tuples(number: int) -> list[tuple[int, int]]:
    """Return the tuples (t, value) of the post of that number."""
    return [(number * 200_000 + each, (number * 7 + each * 3) % 20) for each in range(10)]


def table(number: int) -> pa.Table:
    times, values = zip(*tuples(number), strict=True)
    return pa.table({"t": pa.array(times, pa.int64()), "value": pa.array(values, pa.int32())})


def right_answer(posts: int) -> dict[int, int]:
    """Return, by each window's start, how many values are above 10, without any code under test."""
    kept = [t for number in range(posts) for t, value in tuples(number) if value > 10]
    return dict(Counter(t // SECOND * SECOND for t in kept))


async def define(world: World) -> None:
    """Define the stream at a.edu and the query at b.edu."""
    schema = Schema(
        "medusa://a.edu/event",
        (Field("t", FieldType.LONG), Field("value", FieldType.INT)),
        time="t",
    )
    async with world.client("a.edu/0") as client:
        await client.create_schema(schema)
        await client.create_stream(
            StreamDefinition(SOURCE, schema.name, readers=(ANY,), writers=(ANY,))
        )
    boxes = (
        Filter("large", SOURCE, ("medusa://b.edu/large",), ("value > 10",)),
        Aggregate(
            "count",
            "medusa://b.edu/large",
            COUNTS,
            SECOND,
            SECOND,
            (),
            (AggregateCall("count", None, "n"),),
        ),
    )
    async with world.client("b.edu/0") as client:
        await client.create_query(Query(QUERY, boxes))
        await client.start_query(QUERY)


async def counted(subscription: Subscription) -> dict[int, int]:
    """Return the counts that a subscriber has received by the stream's end; a repeated window is a
    fault."""
    found: dict[int, int] = {}
    async for epoch in subscription:
        starts = epoch.table.column("window_start").cast(pa.int64()).to_pylist()
        for start, n in zip(starts, epoch.table.column("n").to_pylist(), strict=True):
            assert start not in found, f"window {start} came twice"
            found[start] = n
    return found


@asynccontextmanager
async def work(world: World, posts: int, by: str = OWNER) -> AsyncIterator[dict[int, int]]:
    """Let a client post and another one, at c.edu, read to the end while the block causes faults;
    afterwards the dictionary holds the reader's rows."""
    found: dict[int, int] = {}

    async def post() -> None:
        if by != OWNER:
            async with world.client(by, patience_s=300.0) as client:
                await send(client, posts, end=False)
        async with world.client(OWNER, patience_s=300.0) as client:
            await send(client, posts if by == OWNER else 0)

    async def read() -> None:
        async with world.client("c.edu/0", patience_s=300.0) as client:
            found.update(await counted(client.subscribe(COUNTS)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(post)
        nursery.start_soon(read)
        yield found


async def send(
    client: AsyncMedusaClient, posts: int, every_s: float = 0.2, *, end: bool = True
) -> None:
    """Post the tuples. end: whether to end the stream, as only its owner may."""
    for number in range(posts):
        await client.post_event(SOURCE, table(number))
        await trio.sleep(every_s)
    if end:
        await client.post_event(SOURCE, None, end=True)
    await client.flush()


def simulate(main: Callable[[World], Awaitable[None]], seed: int = 0) -> Outcome:
    """Run the simulation; raise the error that occurred in it."""
    outcome = run_simulation(main, seed, PEERS)
    if outcome.error is not None:
        print("\n".join(outcome.trace))
        raise outcome.error
    return outcome


async def eventful(world: World) -> None:
    """Return a scenario of bad weather, kills at any moment and during writes, a partition, and a
    drifting clock."""
    world.network.links.default = BAD_WEATHER
    await world.start_all()
    await define(world)
    async with work(world, 60) as found:
        world.set_clock("b.edu/0", offset_s=0.5, drift=0.001)
        for _ in range(3):
            name = world.rng.choice(["a.edu/0", "b.edu/0"])
            await trio.sleep(world.rng.uniform(0.5, 3.0))
            await world.crash_amid_writing(name, power=world.rng.random() < 0.5)
            await trio.sleep(world.rng.uniform(0.1, 3.0))
            await world.restart(name)
        hosts = [peer.host for peer in world.peers.values()]
        world.network.links.partition(hosts[:1], hosts[1:])
        await trio.sleep(5)
        world.network.links.heal_all()
    assert found == right_answer(60)


if __name__ == "__main__":
    result = simulate(eventful, int(sys.argv[1]))
    print(result.digest, result.packets, result.virtual_s, len(result.trace))
