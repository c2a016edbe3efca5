"""Spark's Structured Streaming: the settings of a busy peer (`throughput`), the RocksDB state store
for windows, the sink that drops the rows. Each file is a batch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.session import Spark
from medusa.testnet.bench.systems import (
    ADVANCE_S,
    FILTER,
    LOW_PORT,
    SIZE_S,
    SLIDING,
    System,
    report,
)

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONFIG = SparkConfig(
    profile="throughput",
    options={"spark.sql.streaming.stateStore.providerClass": STATE_STORE},
)
COLUMNS = "stime BIGINT, seq BIGINT, ts BIGINT, src STRING, port INT, bytes BIGINT"


class StructuredStreaming(System):
    """Spark's own streaming. For throughput, all files exist at the start; latency is the time
    until no batch is under way or due."""

    slow: tuple[str, ...] = (SLIDING,)

    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    def run(self, query: str, files: Sequence[Path]) -> None:
        with tempfile.TemporaryDirectory() as name:
            source = Path(name) / "source"
            source.mkdir()
            for file in files:
                put(file, source)
            self._spark.run(partial(_to_the_end, query=query, folder=Path(name)))

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        with tempfile.TemporaryDirectory() as name:
            source = Path(name) / "source"
            source.mkdir()
            running = self._spark.run(partial(_start, query=query, folder=Path(name)))
            running.processAllAvailable()
            try:
                for file in files:
                    began = time.perf_counter()
                    put(file, source)
                    running.processAllAvailable()
                    yield time.perf_counter() - began
            finally:
                running.stop()


def put(file: Path, folder: Path) -> None:
    """Put a file into a folder: it appears complete, after those before."""
    hidden = folder / f".{file.name}"
    shutil.copyfile(file, hidden)
    os.utime(hidden, (now := time.time(), now))
    hidden.rename(folder / file.name)


def _to_the_end(session: SparkSession, query: str, folder: Path) -> None:
    _writer(session, query, folder).trigger(availableNow=True).start().awaitTermination()


def _start(session: SparkSession, query: str, folder: Path) -> StreamingQuery:
    return _writer(session, query, folder).start()


def _writer(session: SparkSession, query: str, folder: Path) -> DataStreamWriter:
    reader = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    rows = reader.parquet(f"file://{folder}/source")
    timed = rows.selectExpr("*", "timestamp_micros(ts) AS time")
    timed.withWatermark("time", "0 seconds").createOrReplaceTempView("flows")
    made = session.sql(_sql(query))
    return made.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))


def _sql(query: str) -> str:
    if query == FILTER:
        return f"SELECT * FROM flows WHERE port < {LOW_PORT}"  # noqa: S608
    window = f"window(time, '{SIZE_S[query]} seconds', '{ADVANCE_S} seconds')"
    # Structured Streaming has no count(DISTINCT); the size of a set is its exact equivalent
    return (
        f"SELECT {window} AS w, src, count(*) AS n, size(collect_set(port)) AS ports "  # noqa: S608
        f"FROM flows GROUP BY {window}, src"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as logs:
        spark = Spark(CONFIG, Path(logs))
        spark.start()
        try:
            report(StructuredStreaming(spark), Path(sys.argv[1]))
        finally:
            spark.stop()
