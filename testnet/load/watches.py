"""The standing questions of a network's operators, and the same ones asked of DuckDB in one batch.

Each is a part of the intrusion query of the papers over one stream of connections, with a threshold
of its own; windows are 60 s, tumbling, aligned to the epoch. The batch side shares nothing with
the engine but the threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import duckdb
import pyarrow as pa

from testnet.oracle import Row

WINDOW_S: Final = 60


class Kind(StrEnum):
    """What is looked for.

    BUSY: addresses with more than so many connections. SCAN: addresses with more than so many
    destination ports. SWEEP: addresses with more than so many destination addresses. TARGET:
    destinations with connections from more than so many addresses.
    """

    BUSY = "busy"
    SCAN = "scan"
    SWEEP = "sweep"
    TARGET = "target"


_AGGREGATES: Final = {
    Kind.BUSY: ("count()", "src_ip"),
    Kind.SCAN: ("count_distinct(dst_port)", "src_ip"),
    Kind.SWEEP: ("count_distinct(dst_ip)", "src_ip"),
    Kind.TARGET: ("count_distinct(src_ip)", "dst_ip"),
}
"""The aggregate box's function and key."""

_SQL: Final = {
    Kind.BUSY: ("count(*)", "src_ip"),
    Kind.SCAN: ("count(DISTINCT dst_port)", "src_ip"),
    Kind.SWEEP: ("count(DISTINCT dst_ip)", "src_ip"),
    Kind.TARGET: ("count(DISTINCT src_ip)", "dst_ip"),
}


@dataclass(frozen=True, slots=True)
class Watch:
    """One standing question of one participant: a query of one task.

    Attributes:
        owner: the participant. sensor: which of its streams it reads, from 0.
        number: of this kind, from 1.
        threshold: what is above it is reported.
    """

    owner: str
    sensor: int
    kind: Kind
    number: int
    threshold: int

    @property
    def query(self) -> str:
        return f"medusa://{self.owner}/watch/{self.kind}{self.number}"

    @property
    def answer(self) -> str:
        """Its output stream, and so its task's name."""
        return f"medusa://{self.owner}/{self.kind}{self.number}"

    def document(self, source: str) -> str:
        """The query as XML, over a stream of connections."""
        function, key = _AGGREGATES[self.kind]
        return f"""\
<query name="{self.query}">
  <box name="count" type="aggregate">
    <input port="1" stream="{source}"/>
    <output port="1" stream="{self.query}/all"/>
    <param name="aggregate-function.0" value="{function}"/>
    <param name="aggregate-function-output-name.0" value="n"/>
    <param name="window-size" value="{WINDOW_S}"/>
    <param name="advance" value="{WINDOW_S}"/>
    <param name="group-by" value="{key}"/>
  </box>
  <box name="above" type="filter">
    <input port="1" stream="{self.query}/all"/>
    <output port="1" stream="{self.answer}"/>
    <param name="expression.0" value="n > {self.threshold}"/>
  </box>
</query>"""

    def rows_of(self, table: pa.Table) -> list[Row]:
        """An epoch of the answer as (window's start in seconds, address, number)."""
        starts = table.column("window_start").cast(pa.int64()).to_pylist()
        keys = table.column(_AGGREGATES[self.kind][1]).to_pylist()
        counts = table.column("n").to_pylist()
        return [
            (start // 1_000_000, key, count)
            for start, key, count in zip(starts, keys, counts, strict=True)
        ]


_THRESHOLDS: Final = {Kind.BUSY: 100, Kind.SCAN: 10, Kind.SWEEP: 12, Kind.TARGET: 30}
"""Those of the papers for the first of a kind; each further one looks a little closer."""


def watches_of(owner: str, count: int, sensors: int) -> tuple[Watch, ...]:
    """So many questions of a participant, the kinds and the sensors taking turns."""
    kinds = tuple(Kind)
    found = []
    for index in range(count):
        turn, kind = index // len(kinds) + 1, kinds[index % len(kinds)]
        sensor = (index + turn) % sensors
        found.append(Watch(owner, sensor, kind, turn, max(_THRESHOLDS[kind] // turn, 1)))
    return tuple(found)


def expected(tables: Iterable[pa.Table], watches: Sequence[Watch]) -> dict[Watch, list[Row]]:
    """The answer to each question over all connections given, sorted."""
    needed = {"ts": pa.float64(), "src_ip": pa.string(), "dst_ip": pa.string()}
    types = pa.schema([*needed.items(), ("dst_port", pa.int32())])
    batches = (batch for table in tables for batch in table.select(types.names).to_batches())
    with duckdb.connect() as database:
        database.register(
            "posted",
            pa.RecordBatchReader.from_batches(types, (batch.cast(types) for batch in batches)),
        )
        database.execute("CREATE TABLE conns AS SELECT * FROM posted")
        return {watch: sorted(database.execute(_statement(watch)).fetchall()) for watch in watches}


def _statement(watch: Watch) -> str:
    function, key = _SQL[watch.kind]
    # floor(ts) is exact, and so is its quotient's floor.
    return f"""
        SELECT CAST(floor(floor(ts) / {WINDOW_S}) AS BIGINT) * {WINDOW_S} AS window_start,
               {key}, {function} AS n
        FROM conns GROUP BY ALL HAVING n > {watch.threshold}"""  # noqa: S608 - our own words
