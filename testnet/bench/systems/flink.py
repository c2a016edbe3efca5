"""Flink: its Table API with window functions, which share slices, in its local cluster, on CSV.

It prints its results, and this program reads them; for throughput it drops them. A job has a start
of about a second, which is in its throughput, and little in its CPU of a row.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

from medusa.testnet.bench import systems

LOOK_MS = 20
"""Milliseconds between two looks for files, and between two watermarks."""


class Flink(systems.System):
    """Flink. It reads a window's rows in order from one file: from several files, some rows would
    be late."""

    kind = "csv"

    def __init__(self, printed: int) -> None:
        self._printed = os.fdopen(printed, "rb")
        self._tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in {
            "pipeline.auto-watermark-interval": f"{LOOK_MS} ms",
            "execution.buffer-timeout.interval": "10 ms",
            "table.local-time-zone": "UTC",
        }.items():
            self._tables.get_config().set(name, value)

    def run(self, query: str, files: Sequence[Path]) -> None:
        with tempfile.TemporaryDirectory() as name:
            with (Path(name) / "rows.csv").open("wb") as joined:
                for file in files:
                    with file.open("rb") as part:
                        shutil.copyfileobj(part, joined)
            self._parallel(os.cpu_count() or 1)
            self._source(Path(name), "")
            self._sink(query, "blackhole")
            self._tables.execute_sql(f"INSERT INTO results {_sql(query)}").wait()

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        with tempfile.TemporaryDirectory() as name:
            self._parallel(1)  # otherwise the watermark would wait for a reader without files
            self._source(Path(name), f", 'source.monitor-interval' = '{LOOK_MS} ms'")
            self._sink(query, "print")
            job = self._tables.execute_sql(f"INSERT INTO results {_sql(query)}")
            try:
                for file in files:
                    yield self._epoch(file, Path(name), query)
            finally:
                job.get_job_client().cancel().result()

    def _epoch(self, file: Path, source: Path, query: str) -> float:
        """Pass on one file; returns the seconds until the last of its results."""
        wanted = _low_ports(file) if query == systems.FILTER else systems.SOURCES
        hidden = source / f".{file.name}"
        shutil.copyfile(file, hidden)
        began = time.perf_counter()
        hidden.rename(source / file.name)
        while wanted:
            wanted -= b"+I[" in self._printed.readline()
        return time.perf_counter() - began

    def _parallel(self, tasks: int) -> None:
        self._tables.get_config().set("parallelism.default", str(tasks))

    def _source(self, folder: Path, option: str) -> None:
        self._tables.execute_sql("DROP TABLE IF EXISTS flows")
        self._tables.execute_sql(f"""
            CREATE TABLE flows (
                ts BIGINT, src STRING, port INT, `bytes` BIGINT,
                t AS TO_TIMESTAMP_LTZ(ts / 1000, 3), WATERMARK FOR t AS t
            ) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'csv'
                    {option})""")

    def _sink(self, query: str, connector: str) -> None:
        self._tables.execute_sql("DROP TABLE IF EXISTS results")
        columns = "ts BIGINT, src STRING, port INT, `bytes` BIGINT"
        if query != systems.FILTER:
            columns = "w TIMESTAMP(3), src STRING, n BIGINT, ports BIGINT"
        self._tables.execute_sql(
            f"CREATE TABLE results ({columns}) WITH ('connector' = '{connector}')"
        )


def _low_ports(file: Path) -> int:
    return sum(int(line.split(",")[2]) < systems.LOW_PORT for line in file.read_text().splitlines())


def _sql(query: str) -> str:
    if query == systems.FILTER:
        return f"SELECT ts, src, port, `bytes` FROM flows WHERE port < {systems.LOW_PORT}"  # noqa: S608
    advance, size = (
        f"INTERVAL '{systems.ADVANCE_S}' SECOND",
        f"INTERVAL '{systems.SIZE_S[query]}' SECOND(3)",
    )
    windows = f"HOP(TABLE flows, DESCRIPTOR(t), {advance}, {size})"
    if query != systems.SLIDING:
        windows = f"TUMBLE(TABLE flows, DESCRIPTOR(t), {size})"
    return (
        "SELECT window_start, src, count(*), count(DISTINCT port) "  # noqa: S608
        f"FROM TABLE({windows}) GROUP BY window_start, window_end, src"
    )


def _main(folder: Path) -> None:
    """The cluster prints to standard output: it goes to a pipe before the cluster starts."""
    reads, writes = os.pipe()
    lines = os.dup(1)
    os.dup2(writes, 1)
    system = Flink(reads)
    os.dup2(lines, 1)
    systems.report(system, folder)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
