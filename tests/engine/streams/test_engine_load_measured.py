"""The CPU seconds that the engine counts for a task agree with those of the operating system."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import trio
from field_texts import fields_of
from pyspark.sql import SparkSession

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import BEGINNING, Schema
from medusa.engine.spark import cpu
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs

pytestmark = pytest.mark.spark

SECOND_US = 1_000_000
SOURCE = Schema("medusa://a.edu/connections", fields_of("source string, port int"))
FILTER = Query(
    "medusa://a.edu/filter", (Filter("low", SOURCE.name, ("medusa://a.edu/low",), ("port < 512",)),)
)
WINDOWS = Query(
    "medusa://a.edu/windows",
    (
        Aggregate(
            "ports",
            SOURCE.name,
            "medusa://a.edu/ports",
            2 * SECOND_US,
            2 * SECOND_US,
            ("source",),
            (AggregateCall("count_distinct", "port", "ports"),),
        ),
    ),
)

WARM_UP = 15
"""The number of epochs before the measured ones: during these the JVM compiles more than it
computes."""


@dataclass
class Spent:
    """CPU seconds, as the engine counts them, and as this process and its JVM used them."""

    counted: float
    tree: float


def tree_s() -> float:
    """Return the CPU seconds of this process and of all below it, so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def connections(second: int, count: int) -> pa.Table:
    """Return one second of the source stream."""
    numbers = range(count)
    step = SECOND_US // count
    columns = [
        pa.array([second * SECOND_US + 1 + n * step for n in numbers], pa.int64()),
        pa.array([second * count + n for n in numbers], pa.int64()),
        pa.array([f"10.0.{n * 7919 % 250}.{n * 104729 % 250}" for n in numbers]),
        pa.array([n * 31 % 1024 for n in numbers], pa.int32()),
    ]
    return pa.Table.from_arrays(columns, schema=SOURCE.source)


@dataclass
class Running:
    """A task's epochs one after another, as its runner computes them."""

    spark: Spark
    task: Task
    program: Program
    source: StreamLog
    output: StreamLog

    @staticmethod
    def of(spark: Spark, folder: Path, query: Query) -> Running:
        (task,) = plan(query, check_query(query, {SOURCE.name: SOURCE}))
        source = StreamLog.open(folder / "in", SOURCE.source)
        output = StreamLog.open(folder / "out", task.output_schema.derived)
        return Running(spark, task, Program(task), source, output)

    def post(self, seconds: int, rows: int) -> None:
        for second in range(seconds):
            self.source.append((second + 1) * SECOND_US, connections(second, rows))

    async def epoch(self, upto: int) -> float:
        """Compute an epoch; return the counted CPU seconds."""
        after = self.output.boundary
        interval = needs(self.task, after, upto, self.source.files.first_stime)
        if interval is None:
            return await self.output.commit(upto, None)
        with self.source.reader.pinned(max(interval.lo, BEGINNING), interval.hi) as files:
            result = await trio.to_thread.run_sync(
                self.spark.run,
                lambda session: self.program.run(
                    session, {SOURCE.name: files}, after, upto, interval
                ),
            )
        return result.cpu_s + await self.output.commit(upto, result.table)


def until_reported(session: SparkSession) -> None:
    """Wait until the status store knows the end of every job."""
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


async def spend(spark: Spark, folder: Path, query: Query, epochs: int, rows: int) -> Spent:
    running = Running.of(spark, folder, query)
    running.post(WARM_UP + epochs, rows)
    counted = before = 0.0
    for number in range(WARM_UP + epochs):
        if number == WARM_UP:
            counted, before = 0.0, tree_s()
        counted += await running.epoch((number + 1) * SECOND_US)
    return Spent(counted, tree_s() - before)


@pytest.mark.parametrize(
    ("query", "epochs", "rows"), [(FILTER, 30, 2_000), (WINDOWS, 20, 2_000), (FILTER, 20, 30_000)]
)
async def test_the_engine_counts_about_the_cpu_that_its_processes_use(
    spark: Spark, tmp_path: Path, query: Query, epochs: int, rows: int
) -> None:
    spent = await spend(spark, tmp_path, query, epochs, rows)
    # The operating system's count includes the JVM's compiler, which is busy for a while.
    assert 0.6 * spent.tree < spent.counted < 1.6 * spent.tree


async def test_a_task_is_not_charged_for_its_neighbour(spark: Spark, tmp_path: Path) -> None:
    light, heavy = (Running.of(spark, tmp_path / name, FILTER) for name in ("light", "heavy"))
    half, end = WARM_UP + 20, WARM_UP + 40
    light.post(end, 500)
    heavy.post(15, 200_000)
    charged: dict[str, list[float]] = {"light": [], "heavy": []}

    async def run(running: Running, name: str, seconds: range) -> None:
        for second in seconds:
            charged[name].append(await running.epoch((second + 1) * SECOND_US))

    await run(light, "light", range(half))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, light, "light", range(half, end))
        nursery.start_soon(run, heavy, "heavy", range(15))
    alone = statistics.mean(charged["light"][WARM_UP:half])
    beside = statistics.mean(charged["light"][half:])
    neighbour = statistics.mean(charged["heavy"][2:])
    assert neighbour > 1.5 * beside, (neighbour, beside)
    assert beside < 2 * alone, (beside, alone)


async def test_a_job_that_cannot_be_metered_has_run_all_the_same(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store keeps some hundred jobs of all tasks, and may drop one while it is read."""
    running = Running.of(spark, tmp_path, FILTER)
    running.post(2, 100)
    monkeypatch.setattr(cpu, "LOOK_S", 0.0)
    asked = []

    def forget(meter: cpu.CpuMeter, _stage: str) -> int:
        asked.append(1)
        return int(meter._store.job(2**30).jobId())  # raises an error as the store does

    monkeypatch.setattr(cpu.CpuMeter, "_stage_ns", forget)
    assert await running.epoch(SECOND_US) > 0
    await trio.to_thread.run_sync(spark.run, until_reported)
    # if the meter does not find this job, it looks at the job before
    assert await running.epoch(2 * SECOND_US) > 0
    assert asked
    assert running.output.files.rows == 2 * sum(n * 31 % 1024 < 512 for n in range(100))
