"""Flink's answers, and the right ones.

Flink's event time has milliseconds only. So Flink and the oracle get times cut to milliseconds. If
there are more than 1,000 events in a second, some have the same millisecond: q18 and q19 order
these by their arrival. For these two queries the oracle gets the exact times, and the times in its
answer are cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from medusa.testnet.nexmark.generate import Events
from medusa.testnet.nexmark.oracle import expected

IN_ORDER: Final = frozenset({"q18", "q19"})
"""Queries that choose only by order, and compare no two times."""

_TYPES: Final = {pa.int64(): "BIGINT", pa.string(): "VARCHAR"}


def right_answer(query: str, events: Events) -> pa.Table:
    """The answer that Flink must give.

    Args:
        events: the events with their exact times.
    """
    if query in IN_ORDER:
        return cut(expected(query, events))
    return expected(query, Events(cut(events.person), cut(events.auction), cut(events.bid)))


def cut(table: pa.Table) -> pa.Table:
    """The table with all its times cut to milliseconds."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            floor = pc.floor_temporal(table[field.name], unit="millisecond")
            table = table.set_column(number, field, floor.cast(field.type))
    return table


def read_answer(folder: Path, right: pa.Schema) -> pa.Table:
    """The final rows of an answer, from the files that the sink `written` made.

    Args:
        right: the columns of the right answer; the files' columns are paired with them by order.
            Raises: ValueError: the files have other columns.
    """
    files = [file for file in sorted(folder.glob("*")) if file.stat().st_size]
    if not files:
        return right.empty_table()
    with files[0].open("rb") as lines:
        names = list(msgspec.json.decode(lines.readline(), type=_Row).after or ())
    if len(names) != len(right):
        raise ValueError(f"columns {names}, not {right.names}")
    struct = ", ".join(
        f'"{name}" {_type(field.type)}' for name, field in zip(names, right, strict=True)
    )
    columns = {"before": f"STRUCT({struct})", "after": f"STRUCT({struct})", "op": "VARCHAR"}
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        try:
            database.read_json(
                [str(file) for file in files], columns=columns, format="newline_delimited"
            ).create("changes")
            answer = database.sql(
                "SELECT unnest(after) FROM changes WHERE op = 'c' EXCEPT ALL "
                "SELECT unnest(before) FROM changes WHERE op = 'd'"
            ).to_arrow_table()
        except duckdb.Error as error:
            raise ValueError(str(error).splitlines()[0]) from None
    # columns are compared by position: q8 has a column `stime`, a name that an answer of Medusa
    # cannot have
    return answer.rename_columns([f"column {number}" for number in range(len(right))])


class _Row(msgspec.Struct):
    """A line of debezium-json: an inserted row has op `c` and `after`, a deleted one `d` and
    `before`."""

    op: str
    after: dict[str, object] | None = None


def _type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    return _TYPES.get(type_, "TIMESTAMP")
