"""The workload of the part `joins`: bids and auctions of Nexmark as epoch files, and how many pairs
the joins of both make.

`FOLDER/NAME.parquet` has the bids of an epoch, `FOLDER/auction/NAME.parquet` its auctions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from medusa.engine.objects.query import Join, JoinKind, Query
from medusa.engine.objects.schema import END, STIME, Field, FieldType, Schema
from medusa.engine.streams.log.epochs import EpochWriter
from medusa.testnet.nexmark.generate import FIRST_AUCTION, generate
from medusa.testnet.nexmark.texts import Integers

INTERVAL: Final = "interval join, 10 s"
AS_OF: Final = "join as of, 100 s"
TABLE: Final = "join with a table"
JOINS: Final = (INTERVAL, AS_OF, TABLE)
BEFORE_US: Final = {INTERVAL: 10_000_000, AS_OF: 100_000_000}
"""How much older than a bid its auction may be, microseconds; in a table the auction may have any
age."""

OTHER: Final = "auction"
"""The name of the folder with the other side of the join."""

_OWNER: Final = "medusa://bench"
BID: Final = Schema(
    f"{_OWNER}/bid", tuple(Field(name, FieldType.LONG) for name in ("auction", "bidder", "price"))
)
AUCTION: Final = Schema(
    f"{_OWNER}/auction",
    tuple(Field(name, FieldType.LONG) for name in ("id", "seller", "category")),
    key=("id",),
)


@dataclass(frozen=True)
class Shape:
    """Epochs of events. rate: events a second of stime."""

    name: str
    epochs: int
    events: int
    rate: int


LARGE: Final = Shape("large", 4, 250_000, 2_500)
SMALL: Final = Shape("small", 40, 2_500, 2_500)
"""Each epoch is a second, so the first ten fill the join of ten seconds."""


def query_of(name: str) -> Query:
    """The join as a query of Medusa."""
    kind = JoinKind.ASOF if name == AS_OF else JoinKind.INNER
    outputs = (
        *((each, f"left.{each}") for each in ("auction", "bidder", "price")),
        ("category", "right.category"),
    )
    predicate = "left.auction = right.id"
    box = Join(
        "join",
        BID.name,
        AUCTION.name,
        f"{_OWNER}/out",
        kind,
        BEFORE_US.get(name, 0),
        0,
        predicate,
        outputs,
        table=name == TABLE,
    )
    return Query(f"{_OWNER}/joins", (box,))


def write(folder: Path, shape: Shape) -> None:
    """Write the epochs; a file's name has its boundary and its events, of both sides together."""
    made = folder / shape.name
    (made / OTHER).mkdir(parents=True)
    events = generate(1, shape.epochs * shape.events, shape.rate)
    sides = ((made, BID, events.bid), (made / OTHER, AUCTION, events.auction))
    for target, schema, table in sides:
        times = np.asarray(table["dateTime"].cast(pa.int64()))
        numbers = pa.array(np.arange(table.num_rows))
        names = [field.name for field in schema.fields]
        source = pa.table([times, numbers, *(table[n] for n in names)], schema=schema.source)
        first = int(np.asarray(events.person["dateTime"].cast(pa.int64()))[0])
        length_us = shape.events * 1_000_000 // shape.rate
        for epoch in range(shape.epochs):
            begin = first + epoch * length_us
            low, high = np.searchsorted(times, [begin, begin + length_us])
            writer = EpochWriter(target, source.schema, compress=False, durable=False)
            writer.write(source.slice(low, high - low))
            writer.finish()
            writer.commit(target / f"{begin + length_us - 1:016}-{shape.events}.parquet")


def pairs(name: str, files: Sequence[Path]) -> int:
    """The number of pairs that a join makes from these epochs: each auction occurs once, and its id
    is its position."""
    bids = [pq.read_table(file, columns=[STIME, "auction"]) for file in files]
    opened: Integers = np.concatenate(
        [np.asarray(pq.read_table(f.parent / OTHER / f.name)[STIME]) for f in files]
    )
    place = np.concatenate([np.asarray(each["auction"]) for each in bids]) - FIRST_AUCTION
    times = np.concatenate([np.asarray(each[STIME]) for each in bids])
    there = place < len(opened)
    age = times[there] - opened[place[there]]
    oldest = BEFORE_US.get(name, END)
    return int(((age >= 0) & (age <= oldest)).sum())
