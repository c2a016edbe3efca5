"""The intrusion query as one batch computation in DuckDB: what the federation must answer.

It shares no code with the engine. Windows are 60 s, tumbling, aligned to the epoch:

* busy: per source address, connections > 100;
* scan: per source address, distinct destination ports > 10;
* cluster: per prefix (the address without its last dotted part), the connections of the addresses
  that are not busy, > 100.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

COLUMNS: Final[Mapping[str, tuple[str, str, str]]] = {
    "busy": ("window_start", "src_ip", "conns"),
    "scan": ("window_start", "src_ip", "ports"),
    "cluster": ("window_start", "prefix", "conns"),
}

Row = tuple[int, str, int]
Answers = dict[str, list[Row]]

# floor(ts) is exact, and so is its quotient's floor: no ts just below a window's end rounds into
# the next window.
_PER_SOURCE: Final = """
    CREATE TABLE per_source AS
    SELECT CAST(floor(floor(ts) / 60) AS BIGINT) * 60 AS window_start,
           src_ip, count(*) AS conns, count(DISTINCT dst_port) AS ports
    FROM conns GROUP BY ALL"""

_ANSWERS: Final[Mapping[str, str]] = {
    "busy": "SELECT window_start, src_ip, conns FROM per_source WHERE conns > 100",
    "scan": "SELECT window_start, src_ip, ports FROM per_source WHERE ports > 10",
    "cluster": """
        SELECT window_start, regexp_replace(src_ip, '\\.[^.]*$', '') AS prefix,
               CAST(sum(conns) AS BIGINT) AS conns
        FROM per_source WHERE conns <= 100 GROUP BY ALL
        HAVING sum(conns) > 100""",
}


def expected(tables: Iterable[pa.Table]) -> Answers:
    """The three answers over all connections given, each sorted by its columns."""
    needed = ["ts", "src_ip", "dst_port"]
    batches = (batch for table in tables for batch in table.select(needed).to_batches())
    types = pa.schema([("ts", pa.float64()), ("src_ip", pa.string()), ("dst_port", pa.int32())])
    with duckdb.connect() as database:
        database.register(
            "conns",
            pa.RecordBatchReader.from_batches(types, (batch.cast(types) for batch in batches)),
        )
        database.execute(_PER_SOURCE)
        return {name: sorted(database.execute(sql).fetchall()) for name, sql in _ANSWERS.items()}


def write_answers(folder: Path, answers: Mapping[str, Sequence[Row]]) -> None:
    """Write busy.csv, scan.csv and cluster.csv into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in COLUMNS.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(columns)
            rows.writerows(answers[name])
