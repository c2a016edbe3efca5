"""DuckDB: one batch, in memory, without state from one epoch to the next. It is the lower bound."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

from medusa.testnet.bench import systems


class DuckDB(systems.System):
    """DuckDB computes all files of a query as one batch; for small epochs it computes, after each
    file, the files of the last window."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database

    def run(self, query: str, files: Sequence[Path]) -> None:
        self._compute(query, files)

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        reach = systems.SIZE_S.get(query, systems.ADVANCE_S) // systems.ADVANCE_S
        for number in range(len(files)):
            began = time.perf_counter()
            rows = self._compute(query, files[max(0, number + 1 - reach) : number + 1], one=True)
            yield time.perf_counter() - began
            if query != systems.FILTER and rows < systems.SOURCES:
                raise systems.WrongAnswerError(f"{query}: {rows} rows")

    def _compute(self, query: str, files: Sequence[Path], *, one: bool = False) -> int:
        source = f"read_parquet({[str(file) for file in files]})"
        return len(self._database.sql(_sql(query, source, one=one)).to_arrow_table())


def _sql(query: str, source: str, *, one: bool) -> str:
    """The SQL of a query over a source; one: whether its rows are those of one window."""
    if query == systems.FILTER:
        return f"SELECT * FROM {source} WHERE port < {systems.LOW_PORT}"  # noqa: S608
    if one:
        counts = "count(*) AS n, count(DISTINCT port) AS ports"
        return f"SELECT src, {counts} FROM {source} GROUP BY src"  # noqa: S608
    panes = systems.SIZE_S[query] // systems.ADVANCE_S
    # one row for each value of a pane, which is in all windows that the pane is in
    return f"""
        SELECT pane - back AS window, src, sum(n) AS n, count(DISTINCT port) AS ports
        FROM (SELECT ts // {systems.ADVANCE_S * 1_000_000} AS pane, src, port, count(*) AS n
              FROM {source} GROUP BY ALL), range({panes}) AS backs(back)
        GROUP BY ALL"""  # noqa: S608


if __name__ == "__main__":
    systems.report(DuckDB(duckdb.connect()), Path(sys.argv[1]))
