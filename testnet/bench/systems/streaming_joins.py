"""Structured Streaming for the part `joins`: its join of two streams with watermarks, with the
settings of `medusa.testnet.bench.systems.structured_streaming`. Its state is what its state store
says that it has on disk.

It has no join as of, and none with a table: since each auction is there once, its join within the
same bound of time, or within none, has the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from medusa.testnet.bench.bids import BEFORE_US, JOINS, OTHER, pairs
from medusa.testnet.bench.systems import WrongAnswerError
from medusa.testnet.bench.systems.structured_streaming import StructuredStreaming, main, put, read

_TIMES = "stime BIGINT, seq BIGINT"
BIDS = f"{_TIMES}, auction BIGINT, bidder BIGINT, price BIGINT"
AUCTIONS = f"{_TIMES}, id BIGINT, seller BIGINT, category BIGINT"


class StreamingJoins(StructuredStreaming):
    """Joins over files."""

    queries: tuple[str, ...] = JOINS
    slow: tuple[str, ...] = ()
    folders: tuple[str, ...] = ("bid", OTHER)

    def put(self, file: Path, folder: Path) -> None:
        put(file.parent / OTHER / file.name, folder / OTHER)
        put(file, folder / "bid")

    def rows(self, session: SparkSession, query: str, folder: Path) -> DataFrame:
        bids = _side(session, folder / "bid", BIDS, "bid_time")
        auctions = _side(session, folder / OTHER, AUCTIONS, "auction_time")
        conditions = ["auction = id", "auction_time <= bid_time"]
        if query in BEFORE_US:
            age = f"INTERVAL {BEFORE_US[query] // 1_000_000} SECONDS"
            conditions.append(f"auction_time >= bid_time - {age}")
        joined = bids.join(auctions, F.expr(" AND ".join(conditions)))
        made = joined.select("bid_time", "auction", "bidder", "price", "category")
        return made.observe("pairs", F.count(F.lit(1)).alias("n"))

    def check(self, running: StreamingQuery, query: str, files: Sequence[Path]) -> None:
        """Check the number of pairs, and note what the state store has on disk."""
        progress = running.recentProgress
        made = sum(each.observedMetrics["pairs"]["n"] for each in progress if each.observedMetrics)
        if made != (right := pairs(query, files)):
            raise WrongAnswerError(f"{query}: {made} pairs, not {right}")
        last = progress[-1].stateOperators
        self.state_bytes = sum(each.customMetrics["rocksdbSstFileSize"] for each in last)


def _side(session: SparkSession, folder: Path, schema: str, time: str) -> DataFrame:
    rows = read(session, folder, schema)
    timed = rows.withColumn(time, F.timestamp_micros("stime")).drop("stime", "seq")
    return timed.withWatermark(time, "0 seconds")


if __name__ == "__main__":
    main(StreamingJoins)
