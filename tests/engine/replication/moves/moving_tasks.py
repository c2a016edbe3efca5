"""Tasks that move between peers: the posted tuples, and the sums that subscribers must receive."""

from __future__ import annotations

from collections.abc import Iterable

import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, rows, send_rows

from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.tools.client.async_client import AsyncMedusaClient

SIZE_US = 100


def windows(place: Place, source: str, path: str = "out") -> Query:
    """Return the sums by window of 100 µs."""
    return Query(
        place.name("q/" + path),
        (
            Aggregate(
                "sum",
                source,
                place.name(path),
                SIZE_US,
                SIZE_US,
                (),
                (AggregateCall("sum", "value", "total"),),
            ),
        ),
    )


def expected(stimes: Iterable[int]) -> list[tuple[int, int]]:
    totals: dict[int, int] = {}
    for stime in stimes:
        totals[stime // SIZE_US] = totals.get(stime // SIZE_US, 0) + stime
    return [(window * SIZE_US + SIZE_US - 1, total) for window, total in sorted(totals.items())]


class Reader:
    """A subscriber that collects a stream's rows: the stime and some columns."""

    def __init__(
        self, client: AsyncMedusaClient, stream: str, *columns: str, after: int = BEGINNING
    ) -> None:
        self.stream, self.columns = stream, columns
        self._subscription = client.subscribe(stream, after)
        self.rows: list[tuple[int, ...]] = []

    async def take(self, boundary: int) -> None:
        """Read until the stream has that boundary."""
        with trio.fail_after(DEADLINE_S):
            while self._subscription.boundary < boundary:
                table = (await anext(self._subscription)).table
                columns = [table.column(name).to_pylist() for name in ("stime", *self.columns)]
                self.rows += zip(*columns, strict=True)

    async def feed(self, client: AsyncMedusaClient, source: str, stimes: range) -> None:
        """Post these rows, and read their results up to the last."""
        await post(client, source, stimes)
        await self.take(stimes[-1])

    async def end(self, client: AsyncMedusaClient, source: str, stimes: range) -> None:
        """Post these last rows, and read all results."""
        await client.post_event(source, rows((at, at) for at in stimes), end=True)
        await self.take(END)


class Sums(Reader):
    """A subscriber to `windows` that collects the sums."""

    def __init__(self, client: AsyncMedusaClient, stream: str, after: int = BEGINNING) -> None:
        super().__init__(client, stream, "total", after=after)

    async def finish(self, client: AsyncMedusaClient, source: str, stimes: range) -> None:
        """Post the last rows: the sums are those of all stimes from 0 on."""
        await self.end(client, source, stimes)
        assert self.rows == expected(range(stimes.stop))

    async def finish_after_250(self, client: AsyncMedusaClient, source: str) -> None:
        """Post one last row after the 250 of `running`: the sums are those of all rows."""
        await client.post_event(source, rows([(300, 1)]), end=True)
        await self.take(END)
        assert self.rows == [*expected(range(250)), (399, 1)]


async def post(client: AsyncMedusaClient, stream: str, stimes: range) -> None:
    await send_rows(client, stream, [(at, at) for at in stimes], boundary=stimes[-1])


async def running(client: AsyncMedusaClient, place: Place) -> tuple[str, Sums]:
    """Give a query of windows that has read 250 tuples, with its source and a subscriber."""
    source = await make_stream(client, place, "s")
    await begin(client, windows(place, source))
    sums = Sums(client, place.name("out"))
    await sums.feed(client, source, range(250))
    return source, sums


async def owner_and_worker(cluster: Cluster) -> tuple[Place, Place, AsyncMedusaClient, str, Sums]:
    """Give two peers of one participant, and the query of `running` at the first, with a client."""
    owner, worker = await cluster.siblings(2)
    client = await cluster.client(owner)
    return owner, worker, client, *await running(client, owner)
