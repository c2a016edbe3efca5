"""A peer that runs queries over the workload, and its measurements, for the part `windows`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psutil
import trio

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Query
from medusa.engine.replication.records.status import PeerStatus
from medusa.engine.streams.messages import StreamStatus
from medusa.testnet.bench.flows import SCHEMA, STREAM, flows, pieces
from medusa.testnet.kit.cast import cpu_seconds, publish
from medusa.testnet.kit.peers import Peer, open_federation, participant_name
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

POSTS_PER_S: Final = 10
"""Posts per second of wall time, if rows are posted at a given speed and not as fast as
possible."""
POST_ROWS: Final = 10_000
"""Rows of a post at full speed."""
QUIET_CORES: Final = 0.1
"""A peer whose Spark has started and warm uses less."""
LOOK_S: Final = 0.5


@dataclass(frozen=True)
class Running:
    """A peer with running queries.

    Attributes:
        poster, reader: clients of it, with a connection each.
    """

    peer: Peer
    poster: AsyncMedusaClient
    reader: AsyncMedusaClient

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the peer: Python, and the JVM."""
        return (self.peer.pid, *self.peer.children())

    def cpu_s(self) -> float:
        """CPU seconds that it has used."""
        return cpu_seconds([self.peer.pid])

    def resident_bytes(self) -> int:
        """Resident memory of all its processes."""
        return sum(psutil.Process(pid).memory_info().rss for pid in self.pids)

    async def post(
        self, rows: int, rate: float, *, begin_us: int = 0, speed: float | None = None
    ) -> None:
        """Post rows, `speed` times as fast as real time; None: as fast as the peer takes them.
        Returns when all are acknowledged.

        Args:
            rate: rows a second of stime. begin_us: the stime of the first, microseconds.
        """
        began, done = trio.current_time(), 0
        size = POST_ROWS if speed is None else max(1, round(rate * speed / POSTS_PER_S))
        for piece in pieces(rows, size, rate, begin_us):
            await self.poster.post_event(STREAM.name, piece)
            done += piece.num_rows
            if speed is not None:
                await trio.sleep_until(began + done / rate / speed)
        await self.poster.flush()

    async def post_one(self, stime_us: int) -> None:
        """Post a row of that stime, so that the boundary moves there; it is acknowledged."""
        await self.poster.post_event(STREAM.name, flows(0, 1, 1.0, stime_us))
        await self.poster.flush()

    async def until(self, stream: str, upto: int) -> None:
        """Read a stream until its boundary reaches `upto`."""
        async for epoch in self.reader.subscribe(stream):
            if epoch.upto >= upto:
                return

    async def status(self) -> PeerStatus:
        """The peer's status, as it reports it."""
        return (await self.poster.status(federation=False)).peers[0]

    async def stream(self, name: str) -> StreamStatus:
        """A stream as the peer reports it."""
        return next(each for each in (await self.status()).streams if each.name == name)

    async def until_ready(self) -> None:
        """Wait until Spark has started and the queries' tasks are warm."""
        while (await self.status()).spark != "running":  # noqa: ASYNC110 - of another process
            await trio.sleep(LOOK_S)
        used = LOOK_S
        while used > QUIET_CORES * LOOK_S:
            before = self.cpu_s()
            await trio.sleep(LOOK_S)
            used = self.cpu_s() - before


@asynccontextmanager
async def running(
    queries: Sequence[Query], stream: StreamDefinition = STREAM
) -> AsyncIterator[Running]:
    """Start a peer with the stream and these queries; it is ready to compute."""
    async with open_federation() as federation:
        peer = await federation.found(participant_name(0))
        await publish(peer, (SCHEMA,), (stream,), queries)
        async with open_medusa(peer.home.folder) as one, open_medusa(peer.home.folder) as other:
            ready = Running(peer, one, other)
            await ready.until_ready()
            yield ready
