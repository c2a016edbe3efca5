"""Statements for Flink: tables over files of CSV, and the texts of `queries/`, nearly unchanged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from medusa.testnet.nexmark.generate import AUCTION, BID, PERSON
from medusa.testnet.nexmark.oracle import TEXTS
from medusa.testnet.nexmark.scripts import CHANGES

SETTINGS: Final = {
    "table.local-time-zone": "UTC",
    # the settings of the suite (conf/config.yaml)
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}
"""The settings that differ from Flink's defaults; the heap and the compiler are Java's defaults."""

WATERMARK: Final = "WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND"
"""The watermark, as the suite declares it; the rows are in order."""

DROPPED: Final = "'connector' = 'blackhole'"
"""The sink of the suite, which drops all rows."""

SIDE_INPUT: Final = pa.schema(
    [("key", pa.int64()), ("value", pa.string()), ("dateTime", pa.timestamp("us", "UTC"))]
)
TABLES: Final = {"person": PERSON, "auction": AUCTION, "bid": BID, "side_input": SIDE_INPUT}

_TYPES: Final = {pa.int64(): "BIGINT", pa.string(): "STRING"}
_RESERVED: Final = re.compile(r"\b(dateTime)\b")
"""Names of columns that are words of Flink's SQL since its version 2."""


def query_text(query: str) -> str:
    """A query for Flink.

    Raises:
        KeyError: there is no such query.
    """
    text = (TEXTS / f"{query}.sql").read_text()
    for change in CHANGES.get(query, ()):
        if change.both:
            text = text.replace(change.text, change.instead)
    return _quoted(text)


def table_text(name: str, folder: Path) -> str:
    """The statement that creates a table over the file that `write_tables` made."""
    columns = [f"`{field.name}` {_TYPES.get(field.type, 'TIMESTAMP(3)')}" for field in TABLES[name]]
    if name == "side_input":
        columns.append("PRIMARY KEY (key) NOT ENFORCED")
    columns.append(_quoted(WATERMARK))
    options = f"'connector' = 'filesystem', 'path' = '{(folder / name).as_uri()}.csv'"
    return f"CREATE TABLE {name} ({', '.join(columns)}) WITH ({options}, 'format' = 'csv')"


def written(folder: Path) -> str:
    """The sink of an answer that is compared; it writes inserted and retracted rows."""
    return (
        f"'connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'debezium-json', "
        "'debezium-json.encode.decimal-as-plain-number' = 'true'"
    )


def write_tables(tables: dict[str, pa.Table], folder: Path) -> None:
    """Write tables as files of CSV without headings, times cut to milliseconds, for `table_text`.

    Each table is one file: if several files were read at once, some rows would be late.
    """
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
            moments = [each.name for each in table.schema if pa.types.is_timestamp(each.type)]
            plain = ", ".join(f"timezone('UTC', {each}) AS {each}" for each in moments)
            database.execute(
                f"COPY (SELECT * REPLACE ({plain}) FROM {name}) TO '{folder / name}.csv' "  # noqa: S608 - ours
                "(FORMAT csv, HEADER false, TIMESTAMPFORMAT '%Y-%m-%d %H:%M:%S.%g')"
            )


def _quoted(text: str) -> str:
    return _RESERVED.sub(r"`\1`", text)
