"""A peer with a query whose answers are known, and with Spark on another machine."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, begin, make_stream, rows, until

from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.spark.workforce import Patience
from medusa.overlay.files import write_secret
from medusa.tools.client.async_client import AsyncMedusaClient

SIZE, ADVANCE = 10, 5
"""The microseconds of a window, and those between the beginnings of two windows."""

BATCH = 100
"""The rows of a post, one per microsecond."""

IMPATIENT = Patience(report_s=0.5, anew_s=6.0)


def value(stime: int) -> int:
    return stime * 7919 % 1000


def expected(stimes: range) -> list[tuple[int, int, int]]:
    """Return (window start, rows, sum) of the odd values, computed without the engine."""
    found = []
    for start in range(stimes.start - SIZE + ADVANCE, stimes.stop, ADVANCE):
        inside = range(max(start, stimes.start), min(start + SIZE, stimes.stop))
        odd = [value(stime) for stime in inside if value(stime) % 2]
        if odd:
            found.append((start, len(odd), sum(odd)))
    return found


def odd_windows(place: Place, source: str) -> Query:
    functions = (AggregateCall("count", None, "rows"), AggregateCall("sum", "value", "sum"))
    odd = Filter("odd", source, (place.name("odd"),), ("value % 2 = 1",))
    windows = Aggregate(
        "windows", place.name("odd"), place.name("out"), SIZE, ADVANCE, (), functions
    )
    return Query(place.name("q"), (odd, windows))


@dataclass
class Run:
    """A peer with a query that runs on a cluster."""

    place: Place
    client: AsyncMedusaClient
    source: str
    posted: int = 0

    @staticmethod
    async def begin(cluster: Cluster, spark: str, secret: str) -> Run:
        """Start the query. spark: the section of medusa.toml."""
        mit = await settle(cluster, spark)
        write_secret(mit.home.spark_secret, secret.encode())
        await cluster.restart(mit)
        client = await cluster.client(mit)
        source = await make_stream(client, mit, "s")
        await begin(client, odd_windows(mit, source))
        return Run(mit, client, source)

    async def post(self) -> None:
        """Post a batch without waiting for it."""
        stimes = range(self.posted, self.posted + BATCH)
        table = rows([(stime, value(stime)) for stime in stimes])
        await self.client.post_event(self.source, table, boundary=stimes[-1])
        self.posted += BATCH

    async def computed(self) -> None:
        """Wait until all posted rows are answered."""
        out = self.place.state("out").log
        await until(lambda: out.boundary >= self.posted - 1 - SIZE, "the answers")

    async def answers(self) -> list[tuple[int, int, int]]:
        """Return (window start, rows, sum) of all answers, in the order in which they come."""
        await self.client.post_event(self.source, None, end=True)
        found: list[tuple[int, int, int]] = []
        with trio.fail_after(DEADLINE_S):
            async for epoch in self.client.subscribe(self.place.name("out")):
                columns = [epoch.table.column(each) for each in ("window_start", "rows", "sum")]
                found += zip(*(each.cast(pa.int64()).to_pylist() for each in columns), strict=True)
        return found

    async def task_says(self, state: str, reason: str) -> bool:
        """Wait until the task has that state, for a reason that begins with this text."""
        (task,) = (await self.client.lookup_object(self.place.name("q"))).tasks
        return task.state == state and task.reason.startswith(reason)

    def events(self) -> list[str]:
        return [each.text for each in self.place.up.engine.overlay.events.recent()]

    async def noted(self, text: str) -> None:
        await until(lambda: any(text in each for each in self.events()), text)


async def settle(cluster: Cluster, spark: str) -> Place:
    """Start mit.edu; the next start of the peer uses that Spark; the peer has no secret yet."""
    mit = await cluster.settle("mit.edu")
    mit.spark_patience = IMPATIENT
    mit.home.config.write_text(spark)
    return mit
