"""The chain, in each variant of availability: A's readings pass through B, C, D and E.

B drops every tenth reading, C computes a value, D counts and sums over sliding windows, E passes on
non-empty results. So a server that forgets its state, or continues too late, gives other answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from msgspec import Struct

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Aggregate, AggregateCall, Box, Filter, Map, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.events import wall_clock
from medusa.testnet.kit.answers import tuples_in
from medusa.testnet.kit.traffic import Sensor
from medusa.tools.client.async_client import AsyncMedusaClient


class Variant(Struct, frozen=True):
    """A mode, and the recovery that consumers may notice."""

    mode: Mode
    recovery: Recovery

    @property
    def label(self) -> str:
        """The name of the variant that people read."""
        if self.mode is Mode.NONE:
            return "none"
        return f"{self.mode.replace('_', ' ')}, {self.recovery}"

    def availability(self, secondary: str) -> Availability:
        """The availability of a query. secondary: peer id (hex)."""
        if self.mode is Mode.NONE:
            return Availability()
        return Availability(self.mode, self.recovery, secondary=secondary)


NONE: Final = Variant(Mode.NONE, Recovery.GAP)
"""The variant without standby, the baseline of the others' costs."""

VARIANTS: Final = (
    NONE,
    Variant(Mode.AMNESIA, Recovery.GAP),
    Variant(Mode.UPSTREAM_BACKUP, Recovery.ROLLBACK),
    Variant(Mode.UPSTREAM_BACKUP, Recovery.PRECISE),
    Variant(Mode.PASSIVE_STANDBY, Recovery.ROLLBACK),
    Variant(Mode.PASSIVE_STANDBY, Recovery.PRECISE),
    Variant(Mode.ACTIVE_STANDBY, Recovery.PRECISE),
)


def chosen(mode: str, recovery: str | None, *, short: bool = False) -> tuple[Variant, ...]:
    """The variants to run: `NONE` first, because the others' costs are compared with it.

    Args:
        mode: one of `Mode`, or "all". recovery: one of `Recovery`; None: all of the table.
        short: only one, the last of them.

    Raises:
        InvalidInputError: there is no such variant.
    """
    found = [
        variant
        for variant in VARIANTS
        if mode in {"all", variant.mode} and recovery in {None, variant.recovery}
    ]
    if not found and mode != "all" and recovery is not None:
        if mode in {Mode.NONE, Mode.AMNESIA}:
            raise InvalidInputError(f"--recovery {recovery}: {mode} promises no more than gap")
        found = [Variant(Mode(mode), Recovery(recovery))]
    return tuple(found[-1:] if short else dict.fromkeys((NONE, *found)))


SOURCE_OWNER: Final = "mit.edu"
"""A's participant: it keeps the source stream, and is not killed."""
CHAIN_OWNER: Final = "utah.edu"
"""The participant of B, C, D, E and of the standbys."""
CLIENT_OWNER: Final = "brown.edu"
"""The participant that subscribes to E's answers; its peer is not killed."""

SERVERS: Final = ("B", "C", "D", "E")

SIZE_US: Final = 1_000_000
"""A window: the state of D that can be lost, microseconds."""
ADVANCE_US: Final = 100_000
"""Interval of answers, microseconds: the resolution of recovery times."""
LANES: Final = 4
"""Groups of each window."""
DROPPED: Final = 10
"""B drops the readings whose number is a multiple of this."""

SCHEMA: Final = Schema(
    f"medusa://{SOURCE_OWNER}/reading",
    (Field("time_us", FieldType.LONG), Field("number", FieldType.LONG)),
    time="time_us",
)
SOURCE: Final = StreamDefinition(
    f"medusa://{SOURCE_OWNER}/readings", SCHEMA.name, readers=(ANY,), max_ahead_us=None
)

Answer = tuple[int, int, int, int, int, int]
"""(window_start in microseconds, lane, readings, first number, last number, sum of values)."""
COLUMNS: Final = ("window_start", "lane", "readings", "first", "last", "total")


def output(server: str) -> str:
    """The output stream of a server."""
    return f"{query_name(server)}/out"


def query_name(server: str) -> str:
    """The name of a server's query."""
    return f"medusa://{CHAIN_OWNER}/{server.lower()}"


def query(server: str, availability: Availability) -> Query:
    """The query of one server."""
    number = SERVERS.index(server)
    source = SOURCE.name if not number else output(SERVERS[number - 1])
    box = _box(server, source, output(server))
    return Query(query_name(server), (box,), (), availability)


def _box(server: str, source: str, to: str) -> Box:
    if server == "B":
        return Filter("sample", source, (to,), (f"number % {DROPPED} <> 0",))
    if server == "C":
        value = (("number", "number"), ("lane", f"number % {LANES}"), ("value", "number * 3 + 1"))
        return Map("value", source, to, value)
    if server == "D":
        functions = (
            AggregateCall("count", None, "readings"),
            AggregateCall("min", "number", "first"),
            AggregateCall("max", "number", "last"),
            AggregateCall("sum", "value", "total"),
        )
        return Aggregate("count", source, to, SIZE_US, ADVANCE_US, ("lane",), functions)
    return Filter("known", source, (to,), ("readings > 0",))


def answers_in(table: pa.Table) -> list[Answer]:
    """The rows of an epoch of E's output."""
    return tuples_in(table, COLUMNS)


@dataclass(frozen=True, slots=True)
class Reading:
    """A posted reading. at_us: microseconds since the epoch, its stime."""

    at_us: int
    number: int


def readings_table(readings: list[Reading]) -> pa.Table:
    """Readings as a table to post."""
    rows = [[each.at_us for each in readings], [each.number for each in readings]]
    return pa.table(rows, schema=SCHEMA.payload)


RATE: Final = 400
"""Readings per second: the cost of the chain is its epochs, not its rows."""
TICK_S: Final = 0.05


def source_sensor(
    client: AsyncMedusaClient, posted: list[Reading], wall: Callable[[], float] = wall_clock
) -> Sensor:
    """The sensor that posts to A's stream. posted: gets every queued reading."""

    def take(at_us: list[int], numbers: list[int]) -> pa.Table:
        made = [Reading(*each) for each in zip(at_us, numbers, strict=True)]
        posted.extend(made)
        return readings_table(made)

    every_us = 1_000_000 // RATE
    return Sensor(client, SOURCE.name, take, every_us=every_us, tick_s=TICK_S, wall=wall)


def expected(readings: list[Reading]) -> set[Answer]:
    """The right answers by plain arithmetic, without the engine."""
    windows: dict[tuple[int, int], list[int]] = {}
    for reading in readings:
        if reading.number % DROPPED == 0:
            continue
        last = reading.at_us // ADVANCE_US
        first = (reading.at_us - SIZE_US) // ADVANCE_US + 1
        for window in range(first, last + 1):
            key = (window * ADVANCE_US, reading.number % LANES)
            windows.setdefault(key, []).append(reading.number)
    return {
        (start, lane, len(numbers), min(numbers), max(numbers), sum(n * 3 + 1 for n in numbers))
        for (start, lane), numbers in windows.items()
    }
