"""The intrusion query of the Medusa papers: as boxes of one participant, and as a DuckDB batch
query that gives the right answers. The two share no code.

The query unites every participant's connections and aggregates them in windows of 60 s, tumbling,
aligned to the epoch:

* busy: per source address, connections > 100;
* scan: per source address, distinct destination ports > 10;
* cluster: per prefix (the address without its last dotted part), the connections of the addresses
  that are not busy, > 100.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from medusa.engine.objects.definitions import ANY, StreamDefinition

DOCUMENT: Final = Path(__file__).with_name("intrusion.xml")
"""The query with placeholders for its names, as a user would give it to `medusa query create`."""

DAY_US: Final = 86_400_000_000
HISTORY_US: Final = 400 * DAY_US
"""History of the sources: it covers whole traces, even half a year of a honeypot."""


@dataclass(frozen=True)
class Names:
    """The object names of the scenario, under the participant that owns the query."""

    owner: str

    @property
    def query(self) -> str:
        return self._under("intrusion")

    @property
    def answers(self) -> dict[str, str]:
        """The stream with the rows of each answer."""
        return {name: self._under(name) for name in ("busy", "scan", "cluster")}

    def _under(self, path: str) -> str:
        return f"medusa://{self.owner}/{path}"


def source_schema(participant: str) -> str:
    return f"medusa://{participant}/conn"


def source_stream(participant: str) -> StreamDefinition:
    """The source stream to which a participant posts its connections; every member may read it."""
    return StreamDefinition(
        name=f"medusa://{participant}/conns",
        schema=source_schema(participant),
        readers=(ANY,),
        history_us=HISTORY_US,
        max_ahead_us=None,
    )


def intrusion_document(names: Names, sources: Sequence[str]) -> str:
    """The query over some source streams, as XML."""
    inputs = "\n    ".join(
        f'<input port="{port}" stream="{stream}"/>' for port, stream in enumerate(sources, 1)
    )
    document = DOCUMENT.read_text(encoding="utf-8")
    return document.replace("{participant}", names.owner).replace("{inputs}", inputs)


COLUMNS: Final[Mapping[str, tuple[str, str, str]]] = {
    "busy": ("window_start", "src_ip", "conns"),
    "scan": ("window_start", "src_ip", "ports"),
    "cluster": ("window_start", "prefix", "conns"),
}

Row = tuple[int, str, int]
Answers = dict[str, list[Row]]

# floor(ts) is exact, and so is its quotient's floor: no ts just below a window's end is rounded
# into the next window
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
    """The three answers over all given connections, each sorted by its columns."""
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
