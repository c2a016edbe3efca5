"""Spark's Structured Streaming: the settings of a busy peer (`throughput`), the RocksDB state store
for windows, the sink that drops the rows. Each file is a batch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.session import Spark
from medusa.testnet.bench import systems

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONFIG = SparkConfig(
    profile="throughput", options={"spark.sql.streaming.stateStore.providerClass": STATE_STORE}
)
COLUMNS = "stime BIGINT, seq BIGINT, ts BIGINT, src STRING, port INT, bytes BIGINT"


class StructuredStreaming(systems.System):
    """Spark's own streaming. For throughput, all files exist at the start; latency is the time
    until no batch is under way or due.

    Attributes:
        folders: the folders for the files, in a temporary folder.
    """

    slow: tuple[str, ...] = (systems.SLIDING,)
    folders: tuple[str, ...] = ("source",)

    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    def run(self, query: str, files: Sequence[Path]) -> None:
        with self._folder() as folder:
            for file in files:
                self.put(file, folder)
            running = self._spark.run(partial(self._start, query=query, folder=folder, once=True))
            self.check(running, query, files)

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        with self._folder() as folder:
            running = self._spark.run(partial(self._start, query=query, folder=folder))
            running.processAllAvailable()
            try:
                for file in files:
                    began = time.perf_counter()
                    self.put(file, folder)
                    running.processAllAvailable()
                    yield time.perf_counter() - began
                self.check(running, query, files)
            finally:
                running.stop()

    def put(self, file: Path, folder: Path) -> None:
        """Give an epoch's rows."""
        put(file, folder / "source")

    def rows(self, session: SparkSession, query: str, folder: Path) -> DataFrame:
        """The query's results."""
        timed = read(session, folder / "source", COLUMNS).selectExpr(
            "*", "timestamp_micros(ts) AS time"
        )
        timed.withWatermark("time", "0 seconds").createOrReplaceTempView("flows")
        return session.sql(_sql(query))

    def check(self, running: StreamingQuery, query: str, files: Sequence[Path]) -> None:
        """Check the results over these files."""

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as name:
            for each in self.folders:
                Path(name, each).mkdir()
            yield Path(name)

    def _start(
        self, session: SparkSession, query: str, folder: Path, *, once: bool = False
    ) -> StreamingQuery:
        """Start the query; if `once`, wait until it has read all present files."""
        writer = self.rows(session, query, folder).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        if not once:
            return writer.start()
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        return running


def read(session: SparkSession, folder: Path, schema: str) -> DataFrame:
    """The files of a folder as they come, each a batch."""
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(f"file://{folder}")


def put(file: Path, folder: Path) -> None:
    """Put a file into a folder: the file appears complete, and after the earlier files."""
    hidden = folder / f".{file.name}"
    shutil.copyfile(file, hidden)
    os.utime(hidden, (now := time.time(), now))
    hidden.rename(folder / file.name)


def _sql(query: str) -> str:
    if query == systems.FILTER:
        return f"SELECT * FROM flows WHERE port < {systems.LOW_PORT}"  # noqa: S608
    window = f"window(time, '{systems.SIZE_S[query]} seconds', '{systems.ADVANCE_S} seconds')"
    # Structured Streaming has no count(DISTINCT); the size of a set is its exact equivalent
    return (
        f"SELECT {window} AS w, src, count(*) AS n, size(collect_set(port)) AS ports "  # noqa: S608
        f"FROM flows GROUP BY {window}, src"
    )


def main(make: Callable[[Spark], systems.System]) -> None:
    """Measure the system over the folder that the arguments name."""
    with tempfile.TemporaryDirectory() as logs:
        spark = Spark(CONFIG, Path(logs))
        spark.start()
        try:
            systems.report(make(spark), Path(sys.argv[1]))
        finally:
            spark.stop()


if __name__ == "__main__":
    main(StructuredStreaming)
