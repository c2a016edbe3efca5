"""Many at one peer: subscribers of one stream, streams, and producers of one stream.

* A thousand subscribers over some connections get 2,500 rows a second. The delay of a part is the
  time from its first arrival at any subscriber to its arrival at each. The reference is a plain
  process that encodes each part once and writes it to a thousand plain connections.
* Each of 200 streams has a producer that posts once its last post is acknowledged; so do 50
  producers of one stream. The reference is one producer of one stream.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
import trio

from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import Acknowledge, Post, Posted, PostEvent, Subscribe, Tuples
from medusa.overlay.clients import open_client
from medusa.overlay.concurrency import one_error
from medusa.overlay.connection import BULK_WEIGHT, Connection
from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.sender import batches
from medusa.testnet.connections.conn import conn_schema
from medusa.testnet.connections.query import source_stream
from medusa.testnet.kit.cast import cpu_seconds, publish
from medusa.testnet.kit.peers import Peer, open_federation, participant_name
from medusa.tools.client.async_client import Endpoint

SUBSCRIBERS: Final = 1_000
CONNECTIONS: Final = 20
"""Connections of the clients, with as many subscriptions or producers each."""
ROWS: Final = 2_500
"""Rows of a part, one a second."""
PARTS: Final = 10
DELAY_GOAL_MS: Final = 1_000
CPU_GOAL_MS: Final = 0.5
STREAMS: Final = 200
PRODUCERS: Final = 50
POSTS: Final = 4_000
"""Posts of all producers of a measurement together."""
POST_ROWS: Final = 10
POST_GOAL: Final = 1.5


@dataclass
class Arrivals:
    """When subscribers got the parts, by the parts' boundaries; seconds of trio's clock."""

    of: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    _whole: trio.Event = field(default_factory=trio.Event)

    def note(self, boundary: int) -> None:
        self.of[boundary].append(trio.current_time())
        if len(self.of[boundary]) == SUBSCRIBERS:
            self._whole.set()
            self._whole = trio.Event()

    async def next_whole(self) -> None:
        """Wait until all subscribers have one part more."""
        await self._whole.wait()

    @property
    def delays(self) -> list[list[float]]:
        """The delays at each subscriber, seconds, of each part that all subscribers have."""
        whole = [times for times in self.of.values() if len(times) == SUBSCRIBERS]
        return [[at - times[0] for at in times] for times in whole]


@dataclass
class Producer:
    """Posts a body to a stream, again and again, each time once the last post is acknowledged.

    Attributes:
        waits: seconds from each post to its acknowledgement.
    """

    connection: Connection
    stream: str
    name: str
    waits: list[float] = field(default_factory=list)

    async def post(self, bodies: Sequence[memoryview]) -> None:
        request = PostEvent(self.stream, self.name)
        async with self.connection.open("post_event", request, weight=BULK_WEIGHT) as duplex:
            await duplex.send(Post(0))
            posted, _ = await duplex.receive(Posted)
            for sequence, body in enumerate(bodies, posted.last + 1):
                began = trio.current_time()
                await duplex.send(Post(sequence), body)
                await duplex.receive(Posted)
                self.waits.append(trio.current_time() - began)


def measure() -> Iterator[Entry]:
    """The delay and cost of parts at many subscribers, and the cost of posts."""
    with one_error():
        yield from trio.run(_measure_subscribers)
        yield from trio.run(_measure_producers)


async def _measure_subscribers() -> list[Entry]:
    plain_s = await _plain_cpu_s()
    async with _peer(1) as (peer, (stream,)), _clients(peer) as connections:
        arrivals = Arrivals()
        bodies = [encode(table) for table in batches(ROWS * (PARTS + 2), ROWS)]
        producer = Producer(connections[0], stream, "bench")
        await producer.post([bodies.pop(0)])
        async with trio.open_nursery() as nursery:
            for number in range(SUBSCRIBERS):
                connection = connections[number % CONNECTIONS]
                nursery.start_soon(_subscribe, connection, stream, arrivals)
            await arrivals.next_whole()
            await _post_and_wait(producer, bodies.pop(0), arrivals)
            arrivals.of.clear()
            before_s, began = cpu_seconds([peer.pid]), trio.current_time()
            for number, body in enumerate(bodies):
                await trio.sleep_until(began + number)
                await _post_and_wait(producer, body, arrivals)
            await trio.sleep_until(began + PARTS)
            cpu_s = cpu_seconds([peer.pid]) - before_s
            nursery.cancel_scope.cancel()
    return _figures(arrivals.delays, cpu_s, plain_s)


async def _post_and_wait(producer: Producer, body: memoryview, arrivals: Arrivals) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(arrivals.next_whole)
        await producer.post([body])


async def _subscribe(connection: Connection, stream: str, arrivals: Arrivals) -> None:
    async with connection.open("subscribe", Subscribe(stream), weight=BULK_WEIGHT) as duplex:
        while True:
            part, _ = await duplex.receive(Tuples)
            if part.upto is not None:
                arrivals.note(part.upto)
                await duplex.send(Acknowledge(part.upto))


def _figures(delays: Sequence[Sequence[float]], cpu_s: float, plain_s: float) -> list[Entry]:
    every = [delay for part in delays for delay in part]
    what = f"{SUBSCRIBERS:,} subscribers of a stream:"
    cost, plain = (round(1e3 * total / SUBSCRIBERS / PARTS, 3) for total in (cpu_s, plain_s))
    return [
        entry(f"{what} delay of a part", round(1e3 * statistics.median(every)), "ms"),
        entry(f"{what} greatest delay", round(1e3 * max(every)), "ms", f"<= {DELAY_GOAL_MS}"),
        entry(f"{what} CPU of each, a second", cost, "ms", f"<= {CPU_GOAL_MS}"),
        entry(f"{what} the same, and of plain connections", cost, "ms", reference=plain),
    ]


async def _plain_cpu_s() -> float:
    """CPU seconds of the reference; this process reads and drops its parts."""
    numbers = map(str, (SUBSCRIBERS, PARTS, ROWS))
    command = [sys.executable, "-m", "medusa.testnet.bench.plain_fanout", *numbers]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None

    async def drain(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            while await stream.receive_some():
                pass

    said = await process.stdout.receive_some()
    async with trio.open_nursery() as nursery:
        for _ in range(SUBSCRIBERS):
            nursery.start_soon(drain, int(said))
    cpu_s = float(await process.stdout.receive_some())
    await process.wait()
    return cpu_s


async def _measure_producers() -> list[Entry]:
    one = await _measure_posts(1, 1)
    found = []
    for what, many in (
        (f"{STREAMS} streams", await _measure_posts(STREAMS, STREAMS)),
        (f"{PRODUCERS} producers of a stream", await _measure_posts(1, PRODUCERS)),
    ):
        goal = f"<= {POST_GOAL}"
        found += [
            entry(f"{what}: posts", round(POSTS / many.took_s), "/s"),
            entry(f"{what}: a post's acknowledgement", round(1e3 * many.wait_s, 2), "ms"),
            entry(f"{what}: CPU of a post", many.cost_ms, "ms", goal, one.cost_ms),
        ]
    return found


@dataclass(frozen=True)
class Posting:
    """A measurement of `POSTS` posts; seconds. wait_s: the median time to an acknowledgement."""

    took_s: float
    wait_s: float
    cpu_s: float

    @property
    def cost_ms(self) -> float:
        return round(1e3 * self.cpu_s / POSTS, 3)


async def _measure_posts(streams: int, producers: int) -> Posting:
    bodies = [encode(table) for table in batches(POSTS * POST_ROWS, POST_ROWS)]
    async with _peer(streams) as (peer, names), _clients(peer) as connections:
        posting = [
            Producer(connections[n % CONNECTIONS], names[n % streams], f"bench-{n}")
            for n in range(producers)
        ]
        before_s, began = cpu_seconds([peer.pid]), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for number, producer in enumerate(posting):
                nursery.start_soon(producer.post, bodies[number::producers])
        took_s, cpu_s = time.perf_counter() - began, cpu_seconds([peer.pid]) - before_s
    waits = [wait for producer in posting for wait in producer.waits]
    return Posting(took_s, statistics.median(waits), cpu_s)


@asynccontextmanager
async def _peer(streams: int) -> AsyncIterator[tuple[Peer, list[str]]]:
    """Open a peer with `streams` streams."""
    async with open_federation() as federation:
        peer = await federation.found(participant_name(0))
        first = source_stream(peer.participant)
        made = [msgspec.structs.replace(first, name=f"{first.name}-{n}") for n in range(streams)]
        # stime is the time of arrival: no producer is behind another one
        schema = msgspec.structs.replace(conn_schema(first.schema), time=None)
        await publish(peer, (schema,), made)
        yield peer, [stream.name for stream in made]


@asynccontextmanager
async def _clients(peer: Peer) -> AsyncIterator[list[Connection]]:
    """Connections of clients to a peer."""
    at = Endpoint.of(peer.home)
    connections: list[Connection] = []

    async def connect(*, task_status: trio.TaskStatus[None]) -> None:
        dial = open_client(at.address, at.participant, at.root_certificate, at.token)
        async with dial as connection:
            connections.append(connection)
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            await nursery.start(connect)
        yield connections
        nursery.cancel_scope.cancel()
