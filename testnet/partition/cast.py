"""The data and the peers of the demonstration: readings of three sources, merged by the first
server of a chain, thinned by each.

One source is on the far side of the split, two are on the near side, with the servers and the
client. So during the split results can be made from a part of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Box, Filter, Query, Union
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.replication.records.status import Snapshot
from medusa.testnet.kit.answers import tuples_in
from medusa.testnet.kit.cast import publish, until_status
from medusa.testnet.kit.peers import CONFIG, Federation, Peer
from medusa.testnet.kit.traffic import Sensor
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

FAR_OWNER: Final = "utah.edu"
"""The participant on the other side of the split."""
NEAR_OWNER: Final = "mit.edu"
"""The participant of the servers and of the client."""

MAX_CHAIN: Final = 4
SIEVES: Final = (10, 7, 11, 13)
"""The n-th server drops the readings whose number is a multiple of the n-th of these."""

SCHEMA: Final = Schema(
    f"medusa://{FAR_OWNER}/reading",
    (
        Field("time_us", FieldType.LONG),
        Field("sensor", FieldType.BYTE),
        Field("number", FieldType.LONG),
    ),
    time="time_us",
)


@dataclass(frozen=True, slots=True)
class Source:
    """A source stream. sensor: its number. share: its part of all readings."""

    sensor: int
    stream: StreamDefinition
    share: float


def sources(missing: float, *, replica: bool = False) -> tuple[Source, ...]:
    """The sources, the far one first; with a replica all are on one side. missing: its share of all
    readings."""
    owners = (FAR_OWNER,) * 3 if replica else (FAR_OWNER, NEAR_OWNER, NEAR_OWNER)
    shares = (missing, (1 - missing) / 2, (1 - missing) / 2)
    return tuple(
        Source(
            number,
            StreamDefinition(
                f"medusa://{owner}/readings{number}",
                SCHEMA.name,
                readers=(ANY,),
                max_ahead_us=None,
            ),
            share,
        )
        for number, (owner, share) in enumerate(zip(owners, shares, strict=True))
    )


def query_name(server: int) -> str:
    """The name of a server's query."""
    return f"medusa://{NEAR_OWNER}/server{server + 1}"


def output(server: int) -> str:
    """The output stream of a server."""
    return f"{query_name(server)}/out"


def query(server: int, bound_s: float, replica: str = "") -> Query:
    """The query of one server, counted from 0. replica: peer id (hex) of its secondary, if any."""
    boxes: tuple[Box, ...] = ()
    source = output(server - 1)
    if not server:
        source = f"{query_name(server)}/merged"
        merged = sources(0.5, replica=bool(replica))
        streams = tuple(each.stream.name for each in merged)
        boxes = (Union("merge", streams, source),)
    sieve = Filter("sieve", source, (output(server),), (f"number % {SIEVES[server]} <> 0",))
    availability = Availability(bound_s=bound_s)
    if replica:
        availability = Availability(
            Mode.ACTIVE_STANDBY, Recovery.PRECISE, bound_s=bound_s, secondary=replica
        )
    return Query(query_name(server), (*boxes, sieve), (), availability)


Row = tuple[int, int]
"""(sensor, number): no two readings share them."""


def rows_in(table: pa.Table) -> list[Row]:
    """The readings in a part of an output."""
    return tuples_in(table, ("sensor", "number"))


def readings_table(sensor: int, at_us: list[int], numbers: list[int]) -> pa.Table:
    """Readings as a table to post."""
    return pa.table([at_us, [sensor] * len(at_us), numbers], schema=SCHEMA.payload)


def expected(posted: Iterable[Row], chain: int) -> set[Row]:
    """The last server's right output for these, by plain arithmetic."""
    sieves = SIEVES[:chain]
    return {row for row in posted if all(row[1] % sieve for sieve in sieves)}


RATE: Final = 525
"""Readings per second of all sources together: Borealis has 175 a stream."""
TICK_S: Final = 0.1
"""Seconds between two posts: the source's boundary lags the clock by as much (as in Borealis)."""


def sensor_of(client: AsyncMedusaClient, source: Source, posted: list[Row]) -> Sensor:
    """The sensor that posts to a source. posted: gets every queued reading."""

    def take(at_us: list[int], numbers: list[int]) -> pa.Table:
        posted.extend((source.sensor, number) for number in numbers)
        return readings_table(source.sensor, at_us, numbers)

    every_us = round(1e6 / (RATE * source.share))
    name = source.stream.name
    return Sensor(client, name, take, every_us=every_us, tick_s=TICK_S, promise=True)


EPOCH_S: Final = 0.15
"""Shortest epoch, seconds, multiplied by the number of peers: a job takes a tenth of a second of a
core that all share, and delays by a busy machine are not due to the split."""

PEER_CONFIG: Final = f"{CONFIG}\n[contracts]\ntrade = false\n\n[engine]\nepoch_s = "
"""medusa.toml of every peer. No market: only the split shall happen."""


class Cast:
    """The peers of the demonstration.

    Args:
        replica: the first server is on the far side as well, with a replica on the near one: the
            poster's B and R, where the sources are at A and the client asks C.

    Attributes:
        source: the peer of the first source: on the far side, unless there is a replica.
        servers: in the order of the chain; the client asks the last. replica: that of the first.
    """

    def __init__(self, federation: Federation, chain: int, *, replica: bool) -> None:
        self._federation = federation
        self._federation.config = f"{PEER_CONFIG}{EPOCH_S * (chain + 1 + replica):.2f}\n"
        self._chain = chain
        self._replicated = replica
        self.source: Peer
        self.servers: list[Peer] = []
        self.replica: Peer | None = None

    @property
    def sides(self) -> tuple[list[Peer], list[Peer]]:
        """The peers on each side."""
        far = self.servers[0] if self._replicated else self.source
        return [far], [peer for peer in self.all if peer is not far]

    @property
    def all(self) -> list[Peer]:
        return [self.source, *self.servers, *([self.replica] if self.replica else [])]

    @property
    def homes(self) -> tuple[Peer, Peer, Peer]:
        """The peer of each source."""
        near = self.source if self._replicated else self.servers[0]
        return self.source, near, near

    @property
    def answers(self) -> str:
        """The last server's output stream."""
        return output(self._chain - 1)

    async def enter(self, report: Callable[[str], None]) -> None:
        """Start all peers, and wait until they know each other."""
        self.source = await self._federation.found(FAR_OWNER)
        first = await self._federation.admit(NEAR_OWNER)
        await first.ready()
        self.servers = [first]
        for number in range(1, self._chain):
            self.servers.append(await self._federation.admit_sibling(first, f"server{number + 1}"))
            report(f"{len(self.all)} peers")
        if self._replicated:
            self.replica = await self._federation.admit_sibling(first, "replica")
        await self._federation.together()

    async def define(self, sources: tuple[Source, ...], bound_s: float) -> None:
        """Publish the sources and a query on each server, and start all."""
        await publish(self.source, (SCHEMA,))
        for source, peer in zip(sources, self.homes, strict=True):
            await publish(peer, streams=(source.stream,))
        for number, peer in enumerate(self.servers):
            standby = self.replica if not number else None
            work = query(number, bound_s, "" if standby is None else standby.id)
            await publish(peer, queries=(work,))

    async def replica_is_ready(self) -> None:
        """Wait until the replica has caught up, and others know that."""

        def caught_up(told: Snapshot) -> bool:
            return any(each.state == "caught up" for peer in told.peers for each in peer.replicas)

        async with open_medusa(self.servers[0].home.folder) as client:
            await until_status(client, caught_up)

    async def read_from(self) -> Peer | None:
        """The peer from which the last server reads the first one's output."""
        async with open_medusa(self.servers[-1].home.folder) as client:
            (last,) = (await client.status(federation=False)).peers
        producers = {each.name: each.producer for each in last.streams if each.role == "follower"}
        wanted = producers.get(output(self._chain - 2), "")
        return next((peer for peer in self.all if peer.id == wanted), None)
