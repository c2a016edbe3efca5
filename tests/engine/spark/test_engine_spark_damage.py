"""A Spark job over a damaged file fails, and the peer finds out which file it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import until
from engine_streams_data import SCHEMA, logged

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.spark.executor import SparkComputation, SparkExecutor
from medusa.engine.spark.session import Spark
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import plan
from medusa.engine.tasks.revisions.runner import runner_of
from medusa.engine.tasks.runner import TaskRunner
from medusa.overlay.events import Events

pytestmark = pytest.mark.spark

SOURCE = "medusa://mit.edu/s"
SIZE_US = 100
SUM = Query(
    "medusa://mit.edu/q",
    (
        Aggregate(
            "sum",
            SOURCE,
            "medusa://mit.edu/out",
            SIZE_US,
            SIZE_US,
            (),
            (AggregateCall("sum", "value", "total"), AggregateCall("max", "name", "last")),
        ),
    ),
)


def open_runner(
    spark: Spark, folder: Path, events: Events, nursery: trio.Nursery
) -> tuple[TaskRunner, StreamLog]:
    schemas = check_query(SUM, {SOURCE: SCHEMA})
    (task,) = plan(SUM, schemas, frozenset({SOURCE}))
    source = StreamLog.open(folder / "in", SCHEMA.source)
    executor = SparkExecutor(lambda: spark, events, folder / "warm-up", nursery)
    executor.state = "running"
    runner = runner_of(
        task,
        inputs={SOURCE: source},
        output=StreamLog.open(folder / "out", task.output_schema.derived),
        executor=executor,
        config=EngineConfig(epoch_s=0.01),
        events=events,
    )
    return runner, source


@pytest.mark.parametrize("column", ["stime", "name", "value"])
async def test_a_job_over_a_damaged_page_fails_and_the_file_is_named(
    tmp_path: Path, spark: Spark, nursery: trio.Nursery, column: str
) -> None:
    events = Events()
    runner, source = open_runner(spark, tmp_path, events, nursery)
    said: list[str] = []
    source.damage.found.add(said.append)
    for start in range(0, 400, 50):
        source.append(start + 49, logged([(at, at) for at in range(start, start + 50)], start))
    path = source.folder / "99_149.parquet"
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    (chunk,) = [each for each in chunks if each.path_in_schema == column]
    whole = path.read_bytes()
    data = bytearray(whole)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    data[first + chunk.total_compressed_size - 3] ^= 1
    path.write_bytes(data)
    async with trio.open_nursery() as running:
        running.start_soon(runner.run)
        await until(lambda: bool(said))
        assert said[0].startswith(f"{path} is damaged")
        output = runner._output
        assert output.boundary < 99, "nothing is computed from it"
        path.write_bytes(whole)
        (lost,) = source.files.lost
        lost.lost = False
        with trio.fail_after(DEADLINE_S):
            await output.wait_beyond(398)
        running.cancel_scope.cancel()
    found = output.reader.read(max(output.start, BEGINNING))
    assert found is not None
    assert found.table.column("total").to_pylist() == [
        sum(range(start, start + 100)) for start in range(0, 400, 100)
    ]
    assert isinstance(found.table, pa.Table)


async def test_a_bug_fails_its_task_once_in_the_log_and_the_peer_goes_on(
    tmp_path: Path, spark: Spark, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    runner, source = open_runner(spark, tmp_path, events, nursery)
    source.append(199, logged([(at, at) for at in range(200)]))
    alone, runs = SparkComputation.alone, 0

    def failing(computation: SparkComputation, *given: Any) -> Result:
        nonlocal runs
        runs += 1
        if runs <= 2:
            raise AssertionError("a task ends with its table")
        return alone(computation, *given)

    monkeypatch.setattr(SparkComputation, "alone", failing)
    monkeypatch.setattr("medusa.engine.spark.shared_jobs.is_small", lambda _: False)
    async with trio.open_nursery() as running:
        running.start_soon(runner.run)
        await until(lambda: runner.status(stopped=False).state == "failing")
        assert "its job met a bug; why: `grep " in runner.status(stopped=False).reason
        await until(lambda: runner._output.boundary >= 199)
        running.cancel_scope.cancel()
    assert runs == 3
    told = [each.text for each in events.recent() if "a task ends with its table" in each.text]
    assert len(told) == 1
