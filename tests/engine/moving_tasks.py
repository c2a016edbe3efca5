"""Tasks that move between peers: what is posted, and the sums that subscribers must get."""

from __future__ import annotations

import trio
from engine_peers import DEADLINE_S, Place, Town, rows

from engine.objects.query import Aggregate, AggregateFunction, Function, Query
from engine.objects.schema import BEGINNING
from tools.client.async_client import AsyncMedusaClient

SIZE_US = 100


def windows(place: Place, source: str, path: str = "out") -> Query:
    """Sums by window of 100 µs."""
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
                (AggregateFunction(Function.SUM, "value", "total"),),
            ),
        ),
    )


def expected(stimes: range) -> list[tuple[int, int]]:
    totals: dict[int, int] = {}
    for stime in stimes:
        totals[stime // SIZE_US] = totals.get(stime // SIZE_US, 0) + stime
    return [(window * SIZE_US + SIZE_US - 1, total) for window, total in sorted(totals.items())]


class Sums:
    """A subscriber that gathers the sums."""

    def __init__(self, client: AsyncMedusaClient, stream: str, after: int = BEGINNING) -> None:
        self._subscription = client.subscribe(stream, after)
        self.rows: list[tuple[int, int]] = []

    async def take(self, boundary: int) -> None:
        """Until the stream has that boundary."""
        with trio.fail_after(DEADLINE_S):
            while self._subscription.boundary < boundary:
                table = (await anext(self._subscription)).table
                self.rows += zip(
                    table.column("stime").to_pylist(),
                    table.column("total").to_pylist(),
                    strict=True,
                )


async def siblings(town: Town, *, others: int = 1) -> list[Place]:
    return await town.settle_all(*["mit.edu"] * (1 + others))


async def post(client: AsyncMedusaClient, stream: str, stimes: range) -> None:
    await client.post_event(stream, rows((at, at) for at in stimes), boundary=stimes[-1])
    await client.flush()
