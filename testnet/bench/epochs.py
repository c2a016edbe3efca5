"""The epoch engine against stock Structured Streaming: same JVM, same session, same Parquet files.

* Structured Streaming is timed by its own progress reports, which leave out the waits between
  batches.
* For small epochs it gets its cheapest sink (noop: rows are computed and dropped), while the epoch
  engine is timed to the sorted Arrow table in Python.
* For throughput both write their output as Parquet files, as a stream's log or Spark's file sink
  does: at half a million rows that is most of the work.
* Rounds alternate, so that a noisy machine affects both; the first rounds of each only warm up.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.executor import kind_of
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.spark.shared_jobs import Order, SharedJob, is_small
from medusa.engine.streams.log.epochs import seal_footer
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs
from medusa.testnet.bench import Entry, entry

SECOND_US: Final = 1_000_000
WARM_UP_SMALL: Final = 8
WARM_UP_LARGE: Final = 1
"""Rounds of each side before the measured ones: a peer runs for days, so its JVM is warm."""

ROUNDS: Final = 5
"""Rounds that count."""

SMALL: Final = (24, 2_500)
"""Epochs and rows in each: one second of a busy link."""

LARGE: Final = (6, 500_000)
"""Epochs and rows in each: a task's epoch while it catches up."""

SOURCE: Final = Schema(
    "medusa://bench/connections",
    (
        Field("src_ip", FieldType.STRING),
        Field("dst_ip", FieldType.STRING),
        Field("dst_port", FieldType.INT),
        Field("bytes", FieldType.LONG),
    ),
)

FILTER: Final = Query(
    "medusa://bench/filter",
    (Filter("low", SOURCE.name, ("medusa://bench/low",), ("dst_port < 512",)),),
)

WINDOWS: Final = Query(
    "medusa://bench/windows",
    (
        Aggregate(
            "ports",
            SOURCE.name,
            "medusa://bench/ports",
            2 * SECOND_US,
            2 * SECOND_US,
            ("src_ip",),
            (
                AggregateCall("count", None, "conns"),
                AggregateCall("count_distinct", "dst_port", "ports"),
            ),
        ),
    ),
)

_FILTER_SQL: Final = "SELECT * FROM {view} WHERE dst_port < 512"
# Structured Streaming has no count(DISTINCT); the size of a set is its exact equivalent
_WINDOWS_SQL: Final = (
    "SELECT window(time, '2 seconds') AS w, src_ip, count(*) AS conns, "
    "size(collect_set(dst_port)) AS ports FROM {view} GROUP BY window(time, '2 seconds'), src_ip"
)


@dataclass(frozen=True)
class Cost:
    """The cost of one round: seconds of each epoch, CPU seconds of all, rows read."""

    epochs_s: list[float]
    cpu_s: float
    rows: int

    @property
    def rows_per_s(self) -> float:
        return self.rows / sum(self.epochs_s)


def measure() -> Iterator[Entry]:
    """Run all measurements of this module, a few minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = Spark(SparkConfig(), folder / "spark")
        spark.start()
        try:
            yield from _measure(spark, folder)
        finally:
            spark.stop()


def _measure(spark: Spark, folder: Path) -> Iterator[Entry]:
    small = _write(folder / "small", *SMALL)
    ours, theirs = _alternate(spark, FILTER, _FILTER_SQL, small, SMALL[1])
    yield _entry(
        "epoch latency, filter, 2,500 rows",
        "ms",
        1e3 * _median_epoch(ours),
        1e3 * _median_epoch(theirs),
        "<= 0.6",
    )
    ours, theirs = _alternate(spark, WINDOWS, _WINDOWS_SQL, small, SMALL[1])
    yield _entry(
        "CPU per epoch, 2-s window count + distinct, 2,500 rows",
        "ms",
        1e3 * _median_cpu(ours),
        1e3 * _median_cpu(theirs),
        "<= 0.5",
    )
    large = _write(folder / "large", *LARGE)
    for title, query, sql in (
        ("filter", FILTER, _FILTER_SQL),
        ("2-s window count + distinct", WINDOWS, _WINDOWS_SQL),
    ):
        ours, theirs = _alternate(spark, query, sql, large, LARGE[1])
        yield _entry(
            f"throughput, {title}",
            "rows/s",
            statistics.median(each.rows_per_s for each in ours),
            statistics.median(each.rows_per_s for each in theirs),
            ">= 1.0",
        )


def _entry(name: str, unit: str, value: float, reference: float, goal: str) -> Entry:
    return entry(f"{name}, against Structured Streaming", value, unit, goal, reference)


def _median_epoch(costs: Sequence[Cost]) -> float:
    return statistics.median(seconds for each in costs for seconds in each.epochs_s)


def _median_cpu(costs: Sequence[Cost]) -> float:
    return statistics.median(each.cpu_s / SMALL[0] for each in costs)


def _alternate(
    spark: Spark, query: Query, sql: str, files: list[Path], rows: int
) -> tuple[list[Cost], list[Cost]]:
    """Rounds of the epoch engine, and of Structured Streaming."""
    (task,) = plan(query, {SOURCE.name: SOURCE, **_outputs(query)})
    program, jobs = Program(task), dict[Hashable, SharedJob]()
    ours, theirs = [], []
    folder = files[0].parent
    large = rows == LARGE[1]
    out = folder.parent / "out" if large else None
    warm_up = WARM_UP_LARGE if large else WARM_UP_SMALL
    for _ in range(warm_up + ROUNDS):
        ours.append(_epochs(spark, task, (program, jobs), files, rows, out=out))
        theirs.append(_streaming(spark, sql, folder, rows * len(files), out))
    return ours[warm_up:], theirs[warm_up:]


def _outputs(query: Query) -> dict[str, Schema]:
    return check_query(query, {SOURCE.name: SOURCE})


def _write(folder: Path, epochs: int, rows: int) -> list[Path]:
    """Files of a source stream, 2,500 rows a second of stime, one file for each epoch."""
    folder.mkdir()
    step = SECOND_US // SMALL[1]
    paths = []
    for epoch in range(epochs):
        numbers = range(epoch * rows, (epoch + 1) * rows)
        table = pa.table(
            [
                pa.array([n * step for n in numbers], pa.int64()),
                pa.array(numbers, pa.int64()),
                pa.array([f"10.0.{n % 7}.{n * 7919 % 41}" for n in numbers]),
                pa.array([f"192.168.{n % 3}.{n * 104729 % 251}" for n in numbers]),
                pa.array([n * 31 % 1024 for n in numbers], pa.int32()),
                pa.array([n * 977 % 65_521 for n in numbers], pa.int64()),
            ],
            schema=SOURCE.source,
        )
        paths.append(folder / f"{epoch:03}.parquet")
        pq.write_table(table, paths[-1], row_group_size=2**17)
        seal_footer(paths[-1])
    return paths


def _epochs(
    spark: Spark,
    task: Task,
    compiled: tuple[Program, dict[Hashable, SharedJob]],
    files: list[Path],
    rows: int,
    *,
    out: Path | None,
) -> Cost:
    """Run the files as epochs; outputs are written to `out`, if given."""
    _empty(out)
    program, jobs = compiled
    span = rows * SECOND_US // SMALL[1]
    seconds: list[float] = []
    before = _cpu_s(spark)
    for number in range(len(files)):
        after, upto = number * span - 1, (number + 1) * span - 1
        started = time.perf_counter()
        interval = needs(task, after, upto)
        if interval is not None:
            first, last = (max(0, (interval.lo + 1) // span), interval.hi // span)
            paths = {SOURCE.name: files[first : last + 1]}
            order = Order(task, paths, after, upto, interval)
            result = spark.run(partial(_compute, program, jobs, order))
            if out is not None:
                pq.write_table(result.table, out / f"{number:03}.parquet")
        seconds.append(time.perf_counter() - started)
    return Cost(seconds, _cpu_s(spark) - before, rows * len(files))


def _compute(
    program: Program,
    jobs: dict[Hashable, SharedJob],
    order: Order,
    session: Any,  # noqa: ANN401 (pyspark's name stays in engine/spark)
) -> Result:
    """As a peer does: a small epoch in a shared job, of one task here; a large one alone."""
    kind = kind_of(order.task)
    if kind is not None and is_small(order.paths):
        job = jobs.get(kind[0]) or jobs.setdefault(kind[0], kind[1]())
        (result,) = job.run(session, [order])
        if result is not None:
            return result
    return program.run(session, order.files, order.after, order.upto, order.interval)


def _empty(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def _streaming(spark: Spark, sql: str, folder: Path, rows: int, out: Path | None) -> Cost:
    """Run the same with Spark's own streaming: every file a batch."""
    checkpoint = folder.parent / "checkpoint"
    _empty(checkpoint)
    _empty(out)

    def job(session: Any) -> list[float]:  # noqa: ANN401 (pyspark's name stays in engine/spark)
        stream = (
            session.readStream.schema(
                "stime BIGINT, seq BIGINT, src_ip STRING, dst_ip STRING, dst_port INT, bytes BIGINT"
            )
            .option("maxFilesPerTrigger", 1)
            .parquet(f"file://{folder}")
        )
        if "window" in sql:
            timed = stream.selectExpr("*", "timestamp_micros(stime) AS time")
            stream = timed.withWatermark("time", "0 seconds")
        stream.createOrReplaceTempView("bench")
        query = (
            session.sql(sql.format(view="bench"))
            .writeStream.format("noop" if out is None else "parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [
            each.durationMs["triggerExecution"] / 1e3
            for each in query.recentProgress
            if each.numInputRows
        ]

    before = _cpu_s(spark)
    seconds = spark.run(job)
    return Cost(seconds, _cpu_s(spark) - before, rows)


def _cpu_s(spark: Spark) -> float:
    """CPU seconds that the JVM and this process have used."""
    fields = Path(f"/proc/{spark.pid}/stat").read_text().rpartition(")")[2].split()
    jvm = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return jvm + time.process_time()
