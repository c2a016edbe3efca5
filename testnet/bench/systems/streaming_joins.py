"""Structured Streaming for the part `joins`: its join of two streams with watermarks, with the
settings of `medusa.testnet.bench.systems.structured_streaming`. Its state is what its state store
says that it has on disk.

It has no join as of, and none with a table: since each auction is there once, its join within the
same bound of time, or within none, has the same results.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medusa.engine.spark.session import Spark
from medusa.testnet.bench.bids import BEFORE_US, JOINS, OTHER, pairs
from medusa.testnet.bench.systems import System, WrongAnswerError, report
from medusa.testnet.bench.systems.structured_streaming import CONFIG, put

_TIMES = "stime BIGINT, seq BIGINT"
BIDS = f"{_TIMES}, auction BIGINT, bidder BIGINT, price BIGINT"
AUCTIONS = f"{_TIMES}, id BIGINT, seller BIGINT, category BIGINT"


class StreamingJoins(System):
    """Joins over files: all files exist at the start, or each arrives after the result of the
    last."""

    queries: tuple[str, ...] = JOINS

    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    def run(self, query: str, files: Sequence[Path]) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _prepare(folder)
            for file in files:
                _put(file, folder)
            running = self._spark.run(partial(_to_the_end, query=query, folder=folder))
            self._check(running, query, files)

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _prepare(folder)
            running = self._spark.run(partial(_start, query=query, folder=folder))
            running.processAllAvailable()
            try:
                for file in files:
                    began = time.perf_counter()
                    _put(file, folder)
                    running.processAllAvailable()
                    yield time.perf_counter() - began
                self._check(running, query, files)
            finally:
                running.stop()

    def _check(self, running: StreamingQuery, query: str, files: Sequence[Path]) -> None:
        progress = running.recentProgress
        made = sum(each.observedMetrics["pairs"]["n"] for each in progress if each.observedMetrics)
        if made != (right := pairs(query, files)):
            raise WrongAnswerError(f"{query}: {made} pairs, not {right}")
        self.state_bytes = _state_bytes(progress[-1])


def _state_bytes(progress: StreamingQueryProgress) -> int:
    """The bytes of the state store on disk after the last batch."""
    return sum(each.customMetrics["rocksdbSstFileSize"] for each in progress.stateOperators)


def _prepare(folder: Path) -> None:
    for name in ("bid", OTHER):
        (folder / name).mkdir()


def _put(file: Path, folder: Path) -> None:
    put(file.parent / OTHER / file.name, folder / OTHER)
    put(file, folder / "bid")


def _to_the_end(session: SparkSession, query: str, folder: Path) -> StreamingQuery:
    running = _writer(session, query, folder).trigger(availableNow=True).start()
    running.awaitTermination()
    return running


def _start(session: SparkSession, query: str, folder: Path) -> StreamingQuery:
    return _writer(session, query, folder).start()


def _writer(session: SparkSession, query: str, folder: Path) -> DataStreamWriter:
    bids = _side(session, folder / "bid", BIDS, "bid_time")
    auctions = _side(session, folder / OTHER, AUCTIONS, "auction_time")
    conditions = ["auction = id", "auction_time <= bid_time"]
    if query in BEFORE_US:
        age = f"INTERVAL {BEFORE_US[query] // 1_000_000} SECONDS"
        conditions.append(f"auction_time >= bid_time - {age}")
    joined = bids.join(auctions, F.expr(" AND ".join(conditions)))
    made = joined.select("bid_time", "auction", "bidder", "price", "category")
    counted = made.observe("pairs", F.count(F.lit(1)).alias("n"))
    return counted.writeStream.format("noop").option(
        "checkpointLocation", str(folder / "checkpoint")
    )


def _side(session: SparkSession, folder: Path, schema: str, time: str) -> DataFrame:
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    rows = reader.parquet(f"file://{folder}")
    timed = rows.withColumn(time, F.timestamp_micros("stime")).drop("stime", "seq")
    return timed.withWatermark(time, "0 seconds")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as logs:
        spark = Spark(CONFIG, Path(logs))
        spark.start()
        try:
            report(StreamingJoins(spark), Path(sys.argv[1]))
        finally:
            spark.stop()
