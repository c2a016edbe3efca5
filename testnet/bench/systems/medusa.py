"""Medusa's executor as a peer runs it: its default profile, `edge`, panes, shared jobs, and an
epoch file for each result. Posts, the journal, subscribers and the joining of small epoch files,
which a peer does besides, are left out."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import trio

from medusa.engine.language.check import MAX_BOXES, check_query
from medusa.engine.language.folding import with_panes
from medusa.engine.objects.query import Query
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.executor import SparkExecutor, open_executor
from medusa.engine.streams.log.epochs import EpochWriter, path_of
from medusa.engine.tasks.execution import Computation
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs
from medusa.overlay.events import Events
from medusa.testnet.bench import flows, systems

COLUMNS = ("ts", "src", "port", "bytes")


@dataclass(frozen=True)
class EpochFile:
    """A file with the tuples of (after, upto]."""

    after: int
    upto: int
    path: Path


@dataclass
class Stage:
    """One task of a query, and its output's log."""

    task: Task
    computation: Computation
    folder: Path
    log: list[EpochFile] = field(default_factory=list)

    async def compute(self, given: Sequence[EpochFile], after: int, upto: int) -> pa.Table:
        """Compute one epoch of the output over the log of the input; returns its rows."""
        interval = needs(self.task, after, upto, 0)
        if interval is None:
            return self.task.output_schema.derived.empty_table()
        needed = [e.path for e in given if e.upto > interval.lo and e.after < interval.hi]
        files = {self.task.inputs[0]: needed}
        result = await self.computation.run(files, after, upto, interval)
        await trio.to_thread.run_sync(self._write, result.table, after, upto)
        return result.table

    def _write(self, table: pa.Table, after: int, upto: int) -> None:
        writer = EpochWriter(self.folder, table.schema, compress=False, durable=False)
        writer.write(table)
        writer.finish()
        path = path_of(self.folder, after, upto)
        writer.commit(path)
        self.log.append(EpochFile(after, upto, path))


class Medusa(systems.System):
    """Medusa's executor. Args: token: the token of the loop in which the executor runs."""

    def __init__(self, executor: SparkExecutor, token: trio.lowlevel.TrioToken) -> None:
        self._executor = executor
        self._token = token

    def run(self, query: str, files: Sequence[Path]) -> None:
        with self._stages(query) as stages:
            trio.from_thread.run(_compute_beside, stages, _epochs_of(files), trio_token=self._token)

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        with self._stages(query) as stages:
            yield from self._epochs(query, stages, files)

    @contextmanager
    def _stages(self, query: str) -> Iterator[Sequence[Stage]]:
        with tempfile.TemporaryDirectory() as folder:
            stages = []
            for number, task in enumerate(_tasks(query_of(query))):
                log = Path(folder, str(number))
                log.mkdir()
                stages.append(Stage(task, self._executor.compile(task), log))
            yield stages

    def _epochs(
        self, query: str, stages: Sequence[Stage], files: Sequence[Path]
    ) -> Iterator[float]:
        given: list[EpochFile] = []
        for epoch in _epochs_of(files):
            given.append(epoch)
            began = time.perf_counter()
            result = trio.from_thread.run(
                _compute_all, stages, given, epoch.after, epoch.upto, trio_token=self._token
            )
            yield time.perf_counter() - began
            check(query, result, files[: len(given)])


def _epochs_of(files: Sequence[Path]) -> list[EpochFile]:
    uptos = [int(file.stem.partition("-")[0]) for file in files]
    return list(map(EpochFile, [-1, *uptos[:-1]], uptos, files))


async def _compute_all(
    stages: Sequence[Stage], given: Sequence[EpochFile], after: int, upto: int
) -> pa.Table:
    for stage in stages:
        result = await stage.compute(given, after, upto)
        given = stage.log
    return result


async def _compute_beside(stages: Sequence[Stage], epochs: Sequence[EpochFile]) -> None:
    """Each stage computes its next epoch while the one behind it computes the last, as tasks of a
    peer do."""
    given, ready = epochs, None
    async with trio.open_nursery() as nursery:
        for stage in stages:
            done, further = trio.open_memory_channel[None](len(epochs))
            nursery.start_soon(_compute_each, stage, given, epochs, ready, done)
            given, ready = stage.log, further


async def _compute_each(
    stage: Stage,
    given: Sequence[EpochFile],
    epochs: Sequence[EpochFile],
    ready: trio.MemoryReceiveChannel[None] | None,
    done: trio.MemorySendChannel[None],
) -> None:
    for epoch in epochs:
        if ready is not None:
            await ready.receive()
        await stage.compute(given, epoch.after, epoch.upto)
        await done.send(None)


def check(query: str, result: pa.Table, files: Sequence[Path]) -> None:
    """Compare the result of the last of these files with Arrow's.

    Raises:
        WrongAnswerError: it differs.
    """
    size_s = systems.SIZE_S.get(query, 0)
    # the rows of a window and one row before, because its last row is the window's first
    used = files[-1 - size_s // systems.ADVANCE_S :]
    rows = pa.concat_tables(pq.read_table(file, columns=list(COLUMNS)) for file in used)
    if query == systems.FILTER:
        names = list(COLUMNS)
        expected = rows.filter(pc.less(rows["port"], systems.LOW_PORT))
    else:
        names = ["src", "n", "ports"]
        end = rows["ts"][-1].as_py()  # the row that closes the window
        within = pc.and_(
            pc.greater_equal(rows["ts"], end - size_s * flows.SECOND_US), pc.less(rows["ts"], end)
        )
        grouped = rows.filter(within).group_by("src")
        expected = grouped.aggregate([([], "count_all"), ("port", "count_distinct")])
        expected = expected.rename_columns(names)
    if not _sorted(result.select(names)).equals(
        _sorted(expected).cast(result.select(names).schema)
    ):
        raise systems.WrongAnswerError(
            f"{query}: {result.num_rows} rows, not those that Arrow gives"
        )


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by(table.column_names[0])


def query_of(query: str) -> Query:
    """The query as Medusa's boxes."""
    if query == systems.FILTER:
        return flows.filtered("others", f"port < {systems.LOW_PORT}")
    return flows.windows(
        "others", systems.SIZE_S[query], systems.ADVANCE_S, (flows.COUNT, flows.DISTINCT)
    )


def _tasks(query: Query) -> tuple[Task, ...]:
    query = with_panes(query, MAX_BOXES)
    given = {flows.STREAM.name: flows.SCHEMA}
    return plan(query, {**given, **check_query(query, given)})


Make = Callable[[SparkExecutor, trio.lowlevel.TrioToken], systems.System]
"""Makes the system, of the executor and the token of the loop in which it runs."""


async def main(make: Make, config: SparkConfig | None = None) -> None:
    """Measure the system over the folder that the arguments name."""
    with tempfile.TemporaryDirectory() as logs:
        here = Path(logs)
        opened = open_executor(config or SparkConfig(), here / "warm-up", here, Events())
        async with opened as executor:
            system = make(executor, trio.lowlevel.current_trio_token())
            await trio.to_thread.run_sync(systems.report, system, Path(sys.argv[1]))


if __name__ == "__main__":
    trio.run(main, Medusa)
