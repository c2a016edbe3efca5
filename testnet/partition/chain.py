"""The data of the demonstration: readings of three sources, merged by the first server of a chain,
thinned by each.

One source is on the far side of the split, two are on the near side, with the servers and the
client. So during the split results can be made from a part of the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Box, Filter, Query, Union
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.testnet.kit.answers import tuples_in
from medusa.testnet.kit.traffic import Sensor
from medusa.tools.client.async_client import AsyncMedusaClient

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
    """The sources, the far one first; with a replica, all three are on the far side. missing: the
    first source's share of all readings; the other two have equal parts of the rest."""
    owners = (FAR_OWNER,) * 3 if replica else (FAR_OWNER, NEAR_OWNER, NEAR_OWNER)
    shares = (missing, (1 - missing) / 2, (1 - missing) / 2)
    return tuple(
        Source(
            number,
            StreamDefinition(
                f"medusa://{owner}/readings{number}", SCHEMA.name, readers=(ANY,), max_ahead_us=None
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
    """The (sensor, number) of each tuple of an output's table."""
    return tuples_in(table, ("sensor", "number"))


def readings_table(sensor: int, at_us: list[int], numbers: list[int]) -> pa.Table:
    """Readings as a table to post."""
    return pa.table([at_us, [sensor] * len(at_us), numbers], schema=SCHEMA.payload)


def expected(posted: Iterable[Row], chain: int) -> set[Row]:
    """The right output of the last server for these readings, by plain arithmetic."""
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
