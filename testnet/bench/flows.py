"""The workload of the parts `windows` and `others`: connections of a hundred sources, made from
their numbers, so that the same numbers give the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.testnet.kit.peers import participant_name

SECOND_US: Final = 1_000_000
SOURCES: Final = 100
"""Groups of each window."""
PORTS: Final = 128
"""Ports of each source: half of the rows of 10 s have a new one at 2,500 rows/s."""

OWNER: Final = f"medusa://{participant_name(0)}"
SCHEMA: Final = Schema(
    f"{OWNER}/flow",
    (
        Field("ts", FieldType.LONG),
        Field("src", FieldType.STRING),
        Field("port", FieldType.INT),
        Field("bytes", FieldType.LONG),
    ),
    time="ts",
)
STREAM: Final = StreamDefinition(
    f"{OWNER}/flows", SCHEMA.name, readers=(ANY,), max_ahead_us=None, history_us=0
)
"""The source. Every member may read it. It keeps no more than its readers need."""

COUNT: Final = AggregateCall("count", None, "n")
SUM: Final = AggregateCall("sum", "bytes", "total")
MAX: Final = AggregateCall("max", "bytes", "most")
DISTINCT: Final = AggregateCall("count_distinct", "port", "ports")
TOTALS: Final = (COUNT, SUM, MAX)

_NAMES: Final = pa.array([f"10.0.0.{number}" for number in range(SOURCES)])


def flows(first: int, rows: int, rate: float, begin_us: int = 0) -> pa.Table:
    """The rows from number `first` on.

    Args:
        rate: rows a second of stime. begin_us: the stime of row 0, microseconds.
    """
    numbers = np.arange(first, first + rows, dtype=np.int64)
    columns = [
        begin_us + (numbers * (SECOND_US / rate)).astype(np.int64),
        _NAMES.take(pa.array(numbers * 7_919 % 10_007 % SOURCES)),
        (numbers * 31 % PORTS).astype(np.int32),
        numbers * 977 % 65_521,
    ]
    return pa.table(columns, schema=SCHEMA.payload)


def pieces(rows: int, size: int, rate: float, begin_us: int = 0) -> Iterator[pa.Table]:
    """Yield that number of rows in tables of that size; the last table may have fewer."""
    for first in range(0, rows, size):
        yield flows(first, min(size, rows - first), rate, begin_us)


def windows(
    name: str,
    size_s: float,
    advance_s: float,
    functions: tuple[AggregateCall, ...] = TOTALS,
    group_by: tuple[str, ...] = ("src",),
) -> Query:
    """A query of one window, `OWNER/name`; it makes `output(name)`."""
    size_us, advance_us = round(size_s * SECOND_US), round(advance_s * SECOND_US)
    box = Aggregate("window", STREAM.name, output(name), size_us, advance_us, group_by, functions)
    return Query(f"{OWNER}/{name}", (box,))


def filtered(name: str, predicate: str) -> Query:
    """A query of one filter, `OWNER/name`; it makes `output(name)`."""
    return Query(f"{OWNER}/{name}", (Filter("low", STREAM.name, (output(name),), (predicate,)),))


def output(name: str) -> str:
    """The stream that the query of that name makes."""
    return f"{OWNER}/{name}-out"
