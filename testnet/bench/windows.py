"""Windows that are folded from panes, and many queries over one stream, at a real peer.

* CPU of the peer for windows that overlap much, against windows without overlap.
* When a large window closes, only its last pane remains to be computed.
* A day's window that advances by a minute: memory while it fills, and the disk that it needs.
* Queries that are due together are one job (`medusa.testnet.bench.crowd`).
* The panes' task moves to where the tuples are (`medusa.testnet.bench.panes_away`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

import trio

from medusa.engine.operators.shared.panes import panes_name
from medusa.engine.streams.config import EngineConfig
from medusa.overlay.concurrency import one_error
from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.crowd import crowd_entries
from medusa.testnet.bench.flows import SECOND_US, STREAM, output, windows
from medusa.testnet.bench.panes_away import away_entry
from medusa.testnet.bench.running import Running, running

RATE: Final = 2_000
"""Rows a second of stime."""
SPAN_S: Final = 700
"""Stime of the rows whose CPU is measured, seconds."""
LARGE_S: Final = 600
CLOSES: Final = 3
CLOSE_SPEED: Final = 40
"""The speed of the traffic, as a multiple of real time: the peer keeps up until the window
closes."""
EPOCH_S: Final = EngineConfig().epoch_s

DAY_S: Final = 86_400
DAY_RATE: Final = 20
"""A hundredth of 2,000 rows/s with as many panes and groups: so the same amount is kept, and read
when a window closes, but the day takes minutes, not hours."""
DAY_SPEED: Final = 480
SAMPLE_S: Final = 1.0


def measure() -> Iterator[Entry]:
    """Measure all figures; some nine minutes."""
    with one_error():
        tumbling = trio.run(cost_us, 10.0, 10.0)
        sliding = trio.run(cost_us, float(LARGE_S), 10.0)
        name = "CPU of a row: window of 600 s advancing by 10 s, against tumbling 10 s"
        yield entry(name, sliding, "us", "<= 1.3", tumbling)
        delays = trio.run(closing_delays)
        name = "delay of the close of a window of 1.2 million rows, beyond an epoch"
        yield entry(name, statistics.median(delays) - EPOCH_S, "s", "<= 0.3")
        yield from trio.run(a_day)
        yield from trio.run(crowd_entries)
        yield trio.run(away_entry)


async def cost_us(size_s: float, advance_s: float) -> float:
    """CPU microseconds of a peer for each row, posted at full speed, from the post to the result
    at a subscriber."""
    rows = RATE * SPAN_S
    async with running((windows("cost", size_s, advance_s),)) as peer:
        before = peer.cpu_s()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.until, output("cost"), SPAN_S * SECOND_US - 1)
            await peer.post(rows, RATE)
            await peer.post_one(SPAN_S * SECOND_US)
        return 1e6 * (peer.cpu_s() - before) / rows


async def closing_delays() -> list[float]:
    """For each window: seconds from the acknowledgement of the post that moves the boundary past
    its end, to its result at a subscriber."""
    delays = []
    async with running((windows("close", LARGE_S, LARGE_S),)) as peer:
        for number in range(CLOSES):
            begin_us = number * LARGE_S * SECOND_US
            end_us = begin_us + LARGE_S * SECOND_US
            await peer.post(RATE * LARGE_S, RATE, begin_us=begin_us, speed=CLOSE_SPEED)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.until, output("close"), end_us - 1)
                await peer.post_one(end_us)
                acknowledged = trio.current_time()
            delays.append(trio.current_time() - acknowledged)
    return delays


async def a_day() -> list[Entry]:
    """Memory and disk of a peer with a day's window that advances by a minute."""
    query = windows("day", DAY_S, 60)
    async with running((query,)) as peer:
        memory: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sample, peer, memory)
            await peer.post(DAY_RATE * DAY_S, DAY_RATE, speed=DAY_SPEED)
            nursery.cancel_scope.cancel()
        return [memory_entry(memory), await _disk_entry(peer)]


async def _sample(peer: Running, memory: list[int]) -> None:
    while True:
        memory.append(await trio.to_thread.run_sync(peer.resident_bytes))
        await trio.sleep(SAMPLE_S)


def memory_entry(memory: Sequence[int]) -> Entry:
    """Memory in the last tenth of the samples, against the tenth that follows the first quarter."""
    tenth, quarter = max(1, len(memory) // 10), len(memory) // 4
    late = statistics.median(memory[-tenth:]) / 2**20
    early = statistics.median(memory[quarter : quarter + tenth]) / 2**20
    name = "memory of peer and JVM with a day's window advancing by a minute"
    return entry(name, round(late), "MB", "<= 1.1", round(early))


async def _disk_entry(peer: Running) -> Entry:
    """The disk that the kept tuples and the panes need, against the disk that all tuples of the
    window would need."""
    source = await peer.stream(STREAM.name)
    panes = await peer.stream(panes_name(output("day")))
    kept, unfolded = source.bytes + panes.bytes, DAY_RATE * DAY_S * source.bytes / source.rows
    name = "disk for a day's window, against the tuples of the window"
    return entry(name, round(kept / 2**20, 2), "MB", None, round(unfolded / 2**20, 2))
