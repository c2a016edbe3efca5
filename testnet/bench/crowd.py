"""Many queries over one stream: tasks that are due together are one Spark job."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import trio

from medusa.engine.objects.query import Query
from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.flows import SECOND_US, STREAM, TOTALS, filtered, flows, output, windows
from medusa.testnet.bench.running import POSTS_PER_S, Running, running

RATE: Final = 2_500
"""Rows a second of wall time."""
FILTERS: Final = 40
WINDOWS: Final = 200
WATCHED: Final = 10
"""Outputs with a subscriber."""
WARM_UP_S: Final = 30.0
MEASURE_S: Final = 30.0

_PREDICATES: Final = (
    "port < {}",
    "bytes > {}00",
    "bytes % 7 = 1 and port > {}",
    "src = '10.0.0.1' or port = {}",
    "port between 10 and {}",
)
_GROUPS: Final = (("src",), ("port",), ())


@dataclass
class Seen:
    """How many cores a peer used, and the delays of its results, seconds."""

    cores: float = 0.0
    delays: list[float] = field(default_factory=list)
    counts: bool = False


async def crowd_entries() -> list[Entry]:
    """Cores and delays with filters, and with windows; some four minutes."""
    entries = []
    for what, queries, cores, delay_s, name in (
        (f"{FILTERS} filters", filters(FILTERS), 0.5, 0.4, "median delay"),
        (f"{WINDOWS} windows", many_windows(WINDOWS), 1.5, 1.5, "median delay beyond its end"),
    ):
        seen = await _measure(queries)
        at = f"{what} over one stream of 2,500 rows/s"
        median = statistics.median(seen.delays)
        entries += [
            entry(f"{at}: cores of peer and JVM", seen.cores, "cores", f"<= {cores}"),
            entry(f"{at}: {name}", median, "s", f"<= {delay_s}"),
        ]
    return entries


def filters(count: int) -> list[Query]:
    """Return that number of different filters, of five kinds."""
    return [
        filtered(f"q{n}", _PREDICATES[n % len(_PREDICATES)].format(16 + 2 * n))
        for n in range(count)
    ]


def many_windows(count: int) -> list[Query]:
    """Return that number of windows of 2 to 11 seconds, by 0 or 1 field, with 1 to 3 functions."""
    return [
        windows(f"q{n}", 2 + n % 10, 2 + n % 10, TOTALS[: 1 + n % 3], _GROUPS[n % len(_GROUPS)])
        for n in range(count)
    ]


async def _measure(queries: Sequence[Query]) -> Seen:
    seen = Seen()
    async with running(queries) as peer, trio.open_nursery() as nursery:
        for query in Random(0).sample(range(len(queries)), WATCHED):
            nursery.start_soon(_watch, peer, output(f"q{query}"), seen)
        await _post_for(peer, WARM_UP_S)
        seen.counts, before, began = True, peer.cpu_s(), trio.current_time()
        await _post_for(peer, MEASURE_S)
        seen.cores = (peer.cpu_s() - before) / (trio.current_time() - began)
        nursery.cancel_scope.cancel()
    return seen


async def _watch(peer: Running, stream: str, seen: Seen) -> None:
    """Note how old the last tuple of each epoch is when it arrives."""
    async for epoch in peer.reader.subscribe(stream):
        if seen.counts and epoch.table.num_rows:
            stime_us = epoch.table["stime"][-1].as_py()
            seen.delays.append(time.time() - stime_us / SECOND_US)


async def _post_for(peer: Running, seconds: float) -> None:
    """Post rows of the present for `seconds` seconds."""
    began, size = trio.current_time(), RATE // POSTS_PER_S
    for number in range(round(seconds * POSTS_PER_S)):
        # the last row of a post has the present time
        now_us = round(time.time() * SECOND_US)
        begin_us = now_us - size * SECOND_US // RATE
        await peer.poster.post_event(STREAM.name, flows(0, size, RATE, begin_us))
        await trio.sleep_until(began + (number + 1) / POSTS_PER_S)
